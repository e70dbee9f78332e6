#include "run_lock.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::app {
namespace {

/// "process 4711 on host node1 since 2026-03-01T12:00:00Z"
std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> time{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(time.data(), time.size(), "%FT%TZ", ::gmtime_r(&now, &utc));
  return "process " + std::to_string(::getpid()) + " on host " + host.data() + " since " + time.data();
}

std::string content_of(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size() - 1, 0);
  return bytes > 0 ? text.data() : "another process";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  const auto path = folder / "lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw Error(ExitCode::environment, {.what = std::string("cannot use the run folder: ") + std::strerror(errno),
                                        .where = path.string(),
                                        .hint = "choose another with --output-dir"});
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      const std::string holder = content_of(descriptor_);
      ::close(std::exchange(descriptor_, -1));
      throw Error(ExitCode::usage, {.what = "the run folder is in use by " + holder,
                                    .where = folder.string(),
                                    .hint = "wait for it or stop it, or choose another --output-dir"});
    }
    log::warning(path.string() + ": this file system has no locks (" + std::strerror(errno) +
                 "): nothing keeps a second process from this run folder");
  }
  const std::string text = this_process();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0) {
    log::warning(path.string() + ": cannot write who uses the run folder: " + std::strerror(errno));
  }
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace gputrain::app
