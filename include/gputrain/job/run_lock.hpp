// Lock of a run folder: only one process at a time writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace gputrain::app {

/// Kernel lock (flock) on `<folder>/lock`. The kernel releases it when the process ends in any way, so it is never
/// stale. On a file system without locks, the lock belongs to the process that the file names if it still runs on this
/// host; if not, there is only a warning.
class RunLock {
 public:
  RunLock() = default;  // holds nothing
  /// Throws Error(usage) that names the holder if another process has the lock, Error(environment) if it cannot write.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(RunLock&& other) noexcept
      : folder_(std::move(other.folder_)),
        owner_(std::move(other.owner_)),
        folder_identity_(other.folder_identity_),
        has_kernel_lock_(other.has_kernel_lock_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(owner_, other.owner_);
    std::swap(folder_identity_, other.folder_identity_);
    std::swap(has_kernel_lock_, other.has_kernel_lock_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~RunLock();

  /// Throws if the folder was moved or removed: Error(usage) if another run uses this path, else Error(environment).
  void check() const;
  /// Returns whether this path is still the folder that is locked; true if nothing is locked.
  bool is_held() const;

 private:
  std::filesystem::path folder_;
  std::string owner_;                                // content of the lock file: this process, in words and as numbers
  std::pair<uint64_t, uint64_t> folder_identity_{};  // device and inode
  bool has_kernel_lock_ = true;
  int descriptor_ = -1;
};

/// Returns whether a process of this host that lives, other than this one, has locked the folder.
bool is_in_use(const std::filesystem::path& folder);

/// Returns the host whose process has locked the folder last; empty: it is this one, or not known.
std::string other_host_of(const std::filesystem::path& folder);

}  // namespace gputrain::app
