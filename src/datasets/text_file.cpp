#include "gputrain/datasets/text_file.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "streams/byte_source.hpp"

namespace gputrain::datasets {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kPiece = size_t{1} << 20;

/// Adds up to `most` bytes to `text`; returns false if these were the last.
bool add_some(std::string& text, size_t most, const ByteSource& source) {
  const size_t size = text.size();
  text.resize(size + most);
  const size_t got = source(std::as_writable_bytes(std::span(text).subspan(size)));
  text.resize(size + got);
  return got == most;
}

}  // namespace

std::string read_text(const std::string& path, int64_t most) {
  constexpr size_t kFirstPart = kPiece / 16, kLargestPart = 16 * kPiece;  // sizes of parts; most files are small
  const auto file = std::make_shared<const data::ReadOnlyFile>(path);
  const ByteSource source = unpacked_bytes_of(file);
  // Parts, because a growing string would at times hold the text twice.
  std::vector<std::string> parts(1);
  size_t size = 0, part = kFirstPart;
  while (add_some(parts.back(), part, source)) {
    size += part;
    if (static_cast<int64_t>(size) > most) throw_too_much_text(path);
    parts.emplace_back();
    part = std::min(2 * part, kLargestPart);
  }
  size += parts.back().size();
  if (static_cast<int64_t>(size) > most) throw_too_much_text(path);
  if (parts.front().starts_with(kByteOrderMark)) parts.front().erase(0, kByteOrderMark.size());
  if (parts.size() == 1) return std::string(parts.front());  // drops unused capacity
  std::string text;
  text.reserve(size);
  for (std::string& each : parts) text += std::exchange(each, {});
  return text;
}

TextWindow::TextWindow(const std::string& path, int64_t& bytes_left)
    : path_(path),
      bytes_left_(&bytes_left),
      source_(unpacked_bytes_of(std::make_shared<const data::ReadOnlyFile>(path))) {
  grow();
  if (text().starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

TextWindow::TextWindow(std::string text, std::string path) : path_(std::move(path)), text_(std::move(text)) {}

void TextWindow::grow() {
  text_.erase(0, std::exchange(at_, 0));
  const size_t before = text_.size();
  has_more_ = add_some(text_, std::max(kPiece, before), source_);
  *bytes_left_ -= std::ssize(text_) - static_cast<int64_t>(before);
  if (*bytes_left_ < 0) throw_too_much_text(path_);
}

void TextWindow::consume(size_t bytes) {
  line_ += std::ranges::count(text().substr(0, bytes), '\n');
  at_ += bytes;
}

std::optional<std::string_view> TextWindow::next_line() {
  while (has_more_ && text().find('\n') == std::string_view::npos) grow();
  const std::string_view all = text();
  if (all.empty()) return std::nullopt;
  const size_t end = std::min(all.find('\n'), all.size());
  consume(std::min(end + 1, all.size()));
  return all.substr(0, end);
}

void throw_too_much_text(const std::string& path) {
  throw Error(ExitCode::data,
              {.what = "more than 16 GiB of text, which is held in memory",
               .where = path,
               .hint = "split the file; or make token files (gputrain data tokenize) and use format: tokens"});
}

}  // namespace gputrain::datasets
