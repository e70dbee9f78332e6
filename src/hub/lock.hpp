// Lock that processes of this and other programs hold while they write one file of the cache.
#pragma once

#include <filesystem>
#include <functional>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::hub {

/// Lock that waits as huggingface_hub does: as long as the other process lives. `on_wait` is called from time to time.
/// Does nothing on a file system without locks.
class FileLock {
 public:
  FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait);

 private:
  Descriptor file_;  // lock, until it is closed
};

}  // namespace gputrain::hub
