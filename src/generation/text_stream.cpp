#include "gputrain/generation/text_stream.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gputrain/core/printable.hpp"

namespace gputrain::generation {
namespace {

constexpr size_t kTokensBefore = 6;  // told tokens that show how the next one is written
constexpr size_t kMostHeldBack = 8;  // no character has more
constexpr std::string_view kReplacement = "\uFFFD";

/// Returns the length of the UTF-8 sequence that a byte begins; 0: none.
size_t sequence_length(unsigned char byte) {
  if (byte < 0x80) return 1;
  if (byte >= 0xC2 && byte <= 0xDF) return 2;
  if (byte >= 0xE0 && byte <= 0xEF) return 3;
  return byte >= 0xF0 && byte <= 0xF4 ? 4 : 0;
}

bool ends_within_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t length = sequence_length(static_cast<unsigned char>(text[text.size() - back]));
    if (length > 0) return length > back;
  }
  return false;
}

/// Returns the text with U+FFFD for what is not UTF-8.
std::string repaired(std::string_view text) {
  std::string valid;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = character_length(text, at); length > 0) {
      valid += text.substr(at, length);
      at += length;
      continue;
    }
    valid += kReplacement;
    do ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  }
  return valid;
}

/// Returns how many bytes at the end of the text are the begin of one of the stops.
size_t bytes_of_a_begin(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops) {
    for (size_t bytes = std::min(stop.size() - 1, text.size()); bytes > most; --bytes)
      if (text.ends_with(std::string_view(stop).substr(0, bytes))) most = bytes;
  }
  return most;
}

}  // namespace

TextStream::TextStream(const tokenizers::Tokenizer& tokenizer, std::span<const int64_t> before,
                       std::function<bool(int64_t)> is_hidden, std::vector<std::string> stops)
    : tokenizer_(tokenizer), is_hidden_(std::move(is_hidden)), stops_(std::move(stops)) {
  for (const int64_t token : before) {
    if (!is_hidden_ || !is_hidden_(token)) tokens_.push_back(token);
  }
  if (tokens_.size() > kTokensBefore) tokens_.erase(tokens_.begin(), tokens_.end() - kTokensBefore);
  told_ = tokens_.size();
}

std::string TextStream::add(int64_t token) {
  if (is_hidden_ && is_hidden_(token)) return {};
  tokens_.push_back(token);
  return until_stop(take(tokens_.size() - told_ > kMostHeldBack), /*is_last=*/false);
}

std::string TextStream::finish() {
  return until_stop(tokens_.size() > told_ ? take(/*is_last=*/true) : std::string(), /*is_last=*/true);
}

std::string TextStream::until_stop(const std::string& more, bool is_last) {
  if (is_stopped_) return {};
  held_ += more;
  size_t end = held_.size();
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  is_stopped_ = end < held_.size();
  if (!is_stopped_ && !is_last) end -= bytes_of_a_begin(held_, stops_);
  std::string told = held_.substr(0, end);
  held_.erase(0, end);
  return told;
}

std::string TextStream::take(bool is_last) {
  const std::string all = tokenizer_.decode(tokens_);
  const bool is_cut = ends_within_character(all) || std::string_view(all).ends_with(kReplacement);
  if (is_cut && !is_last) return {};
  const size_t known = tokenizer_.decode(std::span(tokens_).first(told_)).size();
  std::string added = repaired(std::string_view(all).substr(std::min(known, all.size())));
  if (tokens_.size() > kTokensBefore) tokens_.erase(tokens_.begin(), tokens_.end() - kTokensBefore);
  told_ = tokens_.size();
  return added;
}

}  // namespace gputrain::generation
