#include "added_tokens.hpp"

#include <algorithm>
#include <numeric>

#include "text/unicode.hpp"

namespace gputrain::tokenizers {
namespace {

unsigned char byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = code_point_before(text, text.size());
  return is_word(code_point(text, at));
}

bool begins_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word(code_point(text, at));
}

size_t space_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t before = code_point_before(text, end);
    size_t at = before;
    if (!is_white_space(code_point(text, at))) break;
    end = before;
  }
  return end;
}

size_t space_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t at = begin;
    if (!is_white_space(code_point(text, at))) break;
    begin = at;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)),
      children_(std::transform_reduce(tokens_.begin(), tokens_.end(), size_t{0}, std::plus<>(),
                                      [](const AddedToken& token) { return token.shown.size(); })),
      node_tokens_{-1} {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& pattern = tokens_[i].shown;
    if (pattern.empty()) continue;
    begins_[byte_at(pattern, 0)] = true;
    int32_t node = 0;
    for (const char byte : pattern) {
      const auto fresh = static_cast<int32_t>(node_tokens_.size());
      if (children_.insert(node, static_cast<unsigned char>(byte), {0, fresh})) node_tokens_.push_back(-1);
      node = children_.find(node, static_cast<unsigned char>(byte)).token;
    }
    int32_t& place = node_tokens_[static_cast<size_t>(node)];
    if (place < 0) place = static_cast<int32_t>(i);  // the first of two tokens with the same pattern
  }
}

int32_t AddedTokens::match(std::string_view text, size_t at, size_t& end) const {
  int32_t node = 0, found = -1;
  for (; at < text.size(); ++at) {
    node = children_.find(node, byte_at(text, at)).token;
    if (node < 0) break;
    if (node_tokens_[static_cast<size_t>(node)] < 0) continue;
    found = node_tokens_[static_cast<size_t>(node)];
    end = at + 1;
  }
  return found;
}

void AddedTokens::cut(std::string_view text, TakeText take_text, TakeToken take_token) const {
  size_t taken = 0;  // up to here text was passed on
  const auto is_begin = [&](char byte) { return begins_[static_cast<unsigned char>(byte)]; };
  for (size_t at = 0; at < text.size();) {
    at = static_cast<size_t>(std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_begin) -
                             text.begin());
    size_t end = at;
    const int32_t index = at < text.size() ? match(text, at, end) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const size_t spelled_begin = at, spelled_end = end;
    size_t begin = at;
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    if (token.is_single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    if (token.takes_space_before) begin = std::max(space_begin(text, begin), taken);
    if (token.takes_space_behind) end = space_end(text, end);
    if (taken < begin) take_text(text.substr(taken, begin - taken), taken);
    take_token(token.token, spelled_begin, spelled_end);
    taken = end;
  }
  if (taken < text.size()) take_text(text.substr(taken), taken);
}

}  // namespace gputrain::tokenizers
