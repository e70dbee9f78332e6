#include "gputrain/core/atomic_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace gputrain {
namespace {

constexpr size_t kMaxPerCall = size_t{1} << 30;  // Linux transfers at most 2 GiB - 4 KiB per call

[[noreturn]] void throw_io_error(const std::filesystem::path& path, const std::string& action, int error,
                                 ExitCode code) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = "free space there, or choose another output_dir";
  if (error == EACCES || error == EROFS || error == EPERM) hint = "choose an output_dir that you may write to";
  throw Error(code, {.what = "cannot " + action + ": " + std::strerror(error), .where = path.string(), .hint = hint});
}

int open_retrying(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int sync_retrying(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

bool is_direct(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), partial_(path_.string() + ".partial"), code_(code) {
  // The name is fixed, so that the next write replaces what a killed process left behind.
  // It is made anew: a link of that name, in a folder that others may write to, would lead to another file.
  if (::unlink(partial_.c_str()) != 0 && errno != ENOENT) fail("create");
  descriptor_ = open_retrying(partial_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, kMaxPerCall));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && is_direct(descriptor_)) {  // unsupported here, or not aligned
      bypass_page_cache(false);
      continue;
    }
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::write_at(int64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(descriptor_, text.data(), std::min(text.size(), kMaxPerCall), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
}

void AtomicFile::bypass_page_cache(bool bypass) noexcept {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags >= 0) ::fcntl(descriptor_, F_SETFL, bypass ? flags | O_DIRECT : flags & ~O_DIRECT);
}

void AtomicFile::commit() {
  GPUTRAIN_ASSERT(descriptor_ >= 0, "a file is committed once");
  if (sync_retrying(descriptor_) != 0) fail("sync");
  // Close after the rename: if the rename fails, the destructor still removes the partial file.
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("rename into place");
  ::close(std::exchange(descriptor_, -1));
  sync_folder(folder_of(path_), code_);
}

void AtomicFile::fail(const char* action) const { throw_io_error(path_, action, errno, code_); }

void write_file_atomically(const std::filesystem::path& path, std::string_view content, ExitCode code) {
  AtomicFile file(path, code);
  file.write(content);
  file.commit();
}

void sync_file(const std::filesystem::path& path, ExitCode code) {
  const int descriptor = open_retrying(path, O_RDONLY);
  if (descriptor < 0 && errno == ENOENT) return;
  if (descriptor < 0) throw_io_error(path, "open the file", errno, code);
  const int failed = sync_retrying(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  if (failed != 0) throw_io_error(path, "sync the file", failed, code);
}

void sync_folder(const std::filesystem::path& folder, ExitCode code) {
  const int descriptor = open_retrying(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) throw_io_error(folder, "open the folder", errno, code);
  const int failed = sync_retrying(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // Some network and FUSE file systems cannot sync folders and return these errors; the rename itself succeeded.
  if (failed != 0 && failed != EINVAL && failed != ENOTSUP) throw_io_error(folder, "sync the folder", failed, code);
}

}  // namespace gputrain
