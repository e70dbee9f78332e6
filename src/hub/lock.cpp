#include "lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace gputrain::hub {
namespace {

/// Mode for a cache that others of the group may share.
constexpr mode_t kMode = 0664;

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode)) {
  if (file_.get() < 0) return;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace gputrain::hub
