// A file descriptor with an owner.
#pragma once

#include <utility>

#include <unistd.h>

namespace gputrain {

/// Closes the descriptor in its destructor; a negative value means none.
class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }  // the caller closes it

 private:
  int value_;
};

}  // namespace gputrain
