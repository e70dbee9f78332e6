#include "gputrain/job/run_lock.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/start_ticks.hpp"

namespace gputrain::app {
namespace {

constexpr const char *kOnHost = " on host ", *kSince = " since ";

std::string this_host() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

/// Returns "process 4711 on host node1 since 2026-03-01T12:00:00Z".
std::string this_process() {
  std::array<char, 32> time{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(time.data(), time.size(), "%FT%TZ", ::gmtime_r(&now, &utc));
  return "process " + std::to_string(::getpid()) + kOnHost + this_host() + kSince + time.data();
}

std::string boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

/// Returns the second line of the file, which identifies a process.
std::string mark_of(pid_t process, int64_t start_ticks) {
  return std::to_string(process) + " " + std::to_string(start_ticks) + " " + boot();
}

std::string content_of(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size() - 1, 0);
  return bytes > 0 ? text.data() : "another process";
}

/// Returns the first line of the file, which describes the process.
std::string holder_in(const std::string& content) { return content.substr(0, content.find('\n')); }

/// Returns the content of a folder's lock file; empty: there is none that can be read.
std::string lock_of(const std::filesystem::path& folder) {
  const int descriptor = ::open((folder / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  std::string content = content_of(descriptor);
  ::close(descriptor);
  return content;
}

/// Returns whether a lock file names another process that lives and that this one can see.
bool names_other_that_lives(const std::string& content) {
  const size_t line = content.find('\n');
  if (line == std::string::npos) return false;
  const std::string mark = content.substr(line + 1, content.find('\n', line + 1) - line - 1);
  const auto process = static_cast<pid_t>(std::strtol(mark.c_str(), nullptr, 10));
  if (process <= 0 || process == ::getpid()) return false;
  const auto ticks = start_ticks_of(process);
  return ticks && mark == mark_of(process, *ticks);
}

std::pair<uint64_t, uint64_t> identity_of(const struct stat& file) { return {file.st_dev, file.st_ino}; }

}  // namespace

bool is_in_use(const std::filesystem::path& folder) { return names_other_that_lives(lock_of(folder)); }

std::string other_host_of(const std::filesystem::path& folder) {
  const std::string holder = holder_in(lock_of(folder));
  const size_t before = holder.find(kOnHost), since = holder.rfind(kSince);
  if (before == std::string::npos || since == std::string::npos) return {};
  const size_t begin = before + std::strlen(kOnHost);
  const std::string host = since > begin ? holder.substr(begin, since - begin) : "";
  return host == this_host() ? "" : host;
}

RunLock::RunLock(const std::filesystem::path& folder)
    : folder_(folder),
      owner_(this_process() + "\n" + mark_of(::getpid(), start_ticks_of(::getpid()).value_or(0)) + "\n") {
  const auto path = folder / "lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) {
    throw Error(ExitCode::environment, {.what = std::string("cannot use the run folder: ") + std::strerror(errno),
                                        .where = path.string(),
                                        .hint = "choose another with --output-dir"});
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string content = content_of(descriptor_);
    if (error == EWOULDBLOCK || names_other_that_lives(content)) {
      ::close(std::exchange(descriptor_, -1));
      throw Error(ExitCode::usage, {.what = "the run folder is in use by " + holder_in(content),
                                    .where = folder.string(),
                                    .hint = "wait for it or stop it, or choose another --output-dir"});
    }
    has_kernel_lock_ = false;
    log::warning(path.string() + ": this file system does not support locks (" + std::strerror(error) +
                 "): a process of another host could use this run folder at the same time");
  }
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, owner_.data(), owner_.size(), 0) < 0) {
    log::warning(path.string() + ": cannot write who uses the run folder: " + std::strerror(errno));
  }
  struct stat own {};
  if (::stat(folder_.c_str(), &own) == 0) folder_identity_ = identity_of(own);
}

/// Compares the inode, or else the content, because some file systems give a file a new inode number on each lookup. If
/// only the lock file was removed, the folder was not moved. A file that cannot be accessed now counts as ours.
bool RunLock::is_held() const {
  if (descriptor_ < 0) return true;
  const auto path = folder_ / "lock";
  struct stat held {};
  struct stat named {};
  if (::stat(path.c_str(), &named) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return true;
    return ::stat(folder_.c_str(), &named) == 0 ? identity_of(named) == folder_identity_ : errno != ENOENT;
  }
  if (has_kernel_lock_ && ::fstat(descriptor_, &held) == 0 && identity_of(held) == identity_of(named)) return true;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return errno != ENOENT;
  const bool is_ours = content_of(descriptor) == owner_;
  ::close(descriptor);
  return is_ours;
}

void RunLock::check() const {
  if (is_held()) return;
  const std::string holder = holder_in(lock_of(folder_));
  const bool is_taken = !holder.empty();
  if (is_taken && !has_kernel_lock_)
    throw Error(ExitCode::usage,
                {.what = "another run uses this run folder now, on a file system without locks: " + holder,
                 .where = folder_.string(),
                 .hint = "end one of them; the same command goes on from the newest checkpoint"});
  throw Error(is_taken ? ExitCode::usage : ExitCode::environment,
              {.what = "the run folder was moved or removed while the run used it" +
                       (is_taken ? ", and another run uses this path now: " + holder : ""),
               .where = folder_.string(),
               .hint = "move it back and start again: training goes on from its newest checkpoint"});
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace gputrain::app
