// Lines of text over pipes and sockets, read and written without ever waiting.
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

  explicit LineReader(int descriptor);  // which it owns; negative: at its end already
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;

  int descriptor() const noexcept { return descriptor_.get(); }  // negative at the end
  bool is_at_end() const noexcept { return descriptor() < 0; }
  /// Hands on the lines that have come, without their ends; at the end of the stream also one that has none.
  void read(const Each& each);

 private:
  void hand_on(const Each& each);

  Descriptor descriptor_;
  std::string rest_;
};

class LineWriter {
 public:
  /// Owns the descriptor. At most so many bytes wait to be written.
  LineWriter(int descriptor, size_t most_bytes);

  /// Where to poll for POLLOUT; negative while nothing waits.
  int wants() const noexcept { return waiting_.empty() ? -1 : descriptor_.get(); }
  bool is_broken() const noexcept { return descriptor_.get() < 0; }  // nobody reads any more
  /// Takes the line and writes what can be written at once. False: there was no room, and the line is lost.
  bool write(std::string_view line);
  /// The same, with room for it whatever waits already: for what must not be lost.
  void insist(std::string_view line);
  /// Goes on writing. Never waits, also where the descriptor would.
  void flush();
  void close();

 private:
  size_t most_bytes_;
  Descriptor descriptor_;
  std::string waiting_;
};

}  // namespace gputrain
