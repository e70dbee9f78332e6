// Shared by the fuzzers of file formats: bytes as a file, and the check of a rejection.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "gputrain/core/error.hpp"

namespace gputrain::testing {

inline void require(bool condition) {
  if (!condition) std::abort();
}

/// A file in memory.
class FuzzedFile {
 public:
  explicit FuzzedFile(std::span<const uint8_t> bytes) : descriptor_(::memfd_create("fuzzed", MFD_CLOEXEC)) {
    require(descriptor_ >= 0 && ::write(descriptor_, bytes.data(), bytes.size()) == std::ssize(bytes));
  }
  ~FuzzedFile() { ::close(descriptor_); }
  FuzzedFile(const FuzzedFile&) = delete;
  FuzzedFile& operator=(const FuzzedFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// True if `action` succeeds; a rejection must be a data error with a message that is safe for a terminal.
template <class Action>
bool accepts(Action&& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ExitCode::data && what.size() < 1000);
    require(std::none_of(what.begin(), what.end(), [](char c) {
      return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    }));
    return false;
  }
}

}  // namespace gputrain::testing
