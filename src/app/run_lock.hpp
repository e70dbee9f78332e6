// One process at a time writes a run folder.
#pragma once

#include <filesystem>
#include <utility>

namespace gputrain::app {

/// The kernel's lock on `<folder>/lock`: it goes with the process that holds it, however that ends, so that no lock is
/// ever stale. A file system without locks is used without one, and that is said.
class RunLock {
 public:
  RunLock() = default;  // holds nothing
  /// Throws Error(usage) naming the holder when another process has it, Error(environment) when there is no writing.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~RunLock();

 private:
  int descriptor_ = -1;
};

}  // namespace gputrain::app
