// Reading of text files, plain, gzip or Zstandard: as a whole, or a part at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gputrain::datasets {

constexpr int64_t kMostTextBytes = int64_t{16} << 30;

/// Reads a whole file, without the byte order mark that some editors put first. Throws Error(data) if it has more than
/// `most` bytes.
std::string read_text(const std::string& path, int64_t most = kMostTextBytes);

/// Part of a text that is in memory. Its reader consumes what is done, and lets it grow for more.
class TextWindow {
 public:
  /// Opens a file, and leaves out its byte order mark. Subtracts the bytes read from `bytes_left`, which must stay
  /// alive, and throws Error(data) if that does not suffice.
  TextWindow(const std::string& path, int64_t& bytes_left);
  /// Holds a whole text; `path` names it in messages.
  TextWindow(std::string text, std::string path);

  const std::string& path() const noexcept { return path_; }
  /// Returns the part, without what has been consumed. Valid until grow().
  std::string_view text() const noexcept { return std::string_view(text_).substr(at_); }
  int64_t line() const noexcept { return line_; }  // returns the number of the line with which the part begins
  bool has_more() const noexcept { return has_more_; }
  /// Adds as much again, at least a mebibyte; call it only if there is more.
  void grow();
  void consume(size_t bytes);
  /// Consumes a line, and returns it without its end; valid until the next call. Empty: there is none.
  std::optional<std::string_view> next_line();

 private:
  std::string path_, text_;
  int64_t* bytes_left_ = nullptr;
  std::function<size_t(std::span<std::byte>)> source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool has_more_ = false;
};

[[noreturn]] void throw_too_much_text(const std::string& path);

}  // namespace gputrain::datasets
