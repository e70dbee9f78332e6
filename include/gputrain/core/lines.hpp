// Reads and writes lines of text over pipes and sockets without blocking.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "gputrain/core/descriptor.hpp"

namespace gputrain {

class LineReader {
 public:
  using Each = std::function<void(std::string_view line)>;

  /// Bytes of a line; longer ones are handed on in parts, so that a line without an end does not take all memory. A
  /// launcher's order holds all arguments and environment variables of a process: up to 2 MiB, and more as JSON.
  static constexpr size_t kLongestLine = size_t{16} << 20;
  /// The same for a connection that has not said yet whose it is.
  static constexpr size_t kLongestOfStrangers = size_t{64} << 10;

  explicit LineReader(int descriptor, size_t longest_line = kLongestLine);  // takes ownership; negative: at the end
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;

  int descriptor() const noexcept { return descriptor_.get(); }  // negative at the end
  bool is_at_end() const noexcept { return descriptor() < 0; }
  void set_longest_line(size_t bytes) noexcept { longest_line_ = bytes; }
  /// Passes each complete line to `each`, without its line end; at the end of the stream also an unfinished line.
  void read(const Each& each);

 private:
  void hand_on(const Each& each);

  Descriptor descriptor_;
  size_t longest_line_;
  std::string rest_;
  size_t searched_ = 0;  // bytes of the rest that have no line end
};

class LineWriter {
 public:
  /// Owns the descriptor. Buffers at most `most_bytes`.
  LineWriter(int descriptor, size_t most_bytes);

  /// Returns the descriptor to poll for POLLOUT; negative while the buffer is empty.
  int wants() const noexcept { return waiting_.empty() ? -1 : descriptor_.get(); }
  bool is_broken() const noexcept { return descriptor_.get() < 0; }  // closed, or the reader is gone
  /// Buffers the line and writes as much as possible. Returns false and drops the line if the buffer is full.
  bool write(std::string_view line);
  /// Writes like write(), but ignores the limit of the buffer: for lines that must not be lost.
  void insist(std::string_view line);
  /// Writes as much of the buffer as possible. Never blocks, even if the descriptor is blocking.
  void flush();
  void close();

 private:
  size_t most_bytes_;
  Descriptor descriptor_;
  std::string waiting_;
};

}  // namespace gputrain
