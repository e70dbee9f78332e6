// One process at a time writes a run folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace gputrain::app {

/// The kernel's lock on `<folder>/lock`: it goes with the process that holds it, however that ends, so that no lock is
/// ever stale. A file system without locks is used without one, and that is said.
class RunLock {
 public:
  RunLock() = default;  // holds nothing
  /// Throws Error(usage) naming the holder when another process has it, Error(environment) when there is no writing.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(RunLock&& other) noexcept
      : folder_(std::move(other.folder_)),
        owner_(std::move(other.owner_)),
        folder_identity_(other.folder_identity_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(owner_, other.owner_);
    std::swap(folder_identity_, other.folder_identity_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~RunLock();

  /// Throws where the folder was moved or removed: Error(usage) where another run's has its name now, else
  /// Error(environment).
  void check() const;
  /// Whether the folder of this name is the one that is locked; true where nothing is.
  bool is_held() const;

 private:
  std::filesystem::path folder_;
  std::string owner_;                                // what the file says: this process
  std::pair<uint64_t, uint64_t> folder_identity_{};  // device and number
  int descriptor_ = -1;
};

}  // namespace gputrain::app
