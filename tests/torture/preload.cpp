// Wrappers of the C library's functions that change files; each reports the operation to Faults.
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "faults.hpp"

namespace {

using torture::faults;
using torture::Unsynced;

/// The original of a wrapped function.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

const auto kNothing = [](auto) {};

off_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_size : 0;
}

bool is_for_writing(int fd) { return (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY; }

/// Opens a file for writing; `open` returns a descriptor or -1.
template <class Open>
int open_to_write(const std::string& path, bool truncates, Open open) {
  struct stat status {};
  const bool was_there = ::stat(path.c_str(), &status) == 0;
  const auto note = [&](int fd) {
    if (!was_there) faults().unsynced().changed({Unsynced::Kind::create, path});
    if (!was_there || truncates) faults().unsynced().wrote(fd, 0, 0, 0);
  };
  return faults().perform("open", path, open, note, nullptr);
}

template <class Open>
int open_file(int folder_fd, const char* path, int flags, Open open) {
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_ACCMODE) != O_RDONLY;
  const std::string full = changes ? faults().path_at(folder_fd, path) : std::string();
  if (!changes || !faults().concerns(full)) return open();
  return open_to_write(full, (flags & O_TRUNC) != 0, open);
}

/// `write` takes the number of bytes; `offset` is the position, or -1 for the descriptor's own.
template <class Write>
ssize_t write_data(int fd, size_t bytes, off_t offset, Write write) {
  const std::string path = faults().path_of(fd);
  if (!faults().concerns(path)) return write(bytes);
  const off_t size_before = size_of(fd);
  const auto note = [&](ssize_t written) {
    const off_t end = offset >= 0 ? offset + written : ::lseek(fd, 0, SEEK_CUR);
    faults().unsynced().wrote(fd, end - written, end, size_before);
  };
  return faults().perform(
      "write", path, [&] { return write(bytes); }, note, [&] { return write((bytes + 1) / 2); });
}

template <class Sync>
int sync_data(const char* operation, int fd, Sync sync) {
  const std::string path = faults().path_of(fd);
  if (!faults().concerns(path)) return sync();
  static const bool kLies = !torture::variable("FAULTS_LIE").empty();
  if (kLies)
    return faults().perform(
        operation, path, [] { return 0; }, kNothing, nullptr);
  const auto note = [&](int) {
    struct stat status {};
    ::fstat(fd, &status);
    if (S_ISDIR(status.st_mode)) {
      faults().unsynced().synced_folder(path);
    } else {
      faults().unsynced().synced_file(fd);
    }
  };
  return faults().perform(operation, path, sync, note, nullptr);
}

template <class Rename>
int rename_path(const std::string& from, const std::string& to, unsigned int flags, Rename rename) {
  if (!faults().concerns(from) && !faults().concerns(to)) return rename();
  std::string backup;
  const auto action = [&] {
    if ((flags & RENAME_EXCHANGE) == 0) backup = faults().unsynced().keep(to);
    return rename();
  };
  const auto kind = (flags & RENAME_EXCHANGE) == 0 ? Unsynced::Kind::rename : Unsynced::Kind::exchange;
  return faults().perform(
      "rename", to, action,
      [&](int) {
        faults().unsynced().changed({kind, to, from, backup});
      },
      nullptr);
}

template <class Action>
int make_name(const char* operation, const std::string& path, Unsynced::Kind kind, Action action) {
  if (!faults().concerns(path)) return action();
  return faults().perform(
      operation, path, action,
      [&](int) {
        faults().unsynced().changed({kind, path});
      },
      nullptr);
}

template <class Action>
int remove_name(const std::string& path, Action remove) {
  if (!faults().concerns(path)) return remove();
  struct stat status {};
  const bool is_folder = ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  std::string backup;
  const auto action = [&] {
    backup = faults().unsynced().keep(path);
    return remove();
  };
  const auto kind = is_folder ? Unsynced::Kind::remove_folder : Unsynced::Kind::unlink;
  const auto note = [&](int) { faults().unsynced().changed({kind, path, "", backup}); };
  return faults().perform(is_folder ? "rmdir" : "unlink", path, action, note, nullptr);
}

mode_t mode_of(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(list, unsigned int)) : 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define NEXT(function) next<decltype(function)>(#function)

#define WRAP_OPEN(name)                                                                     \
  EXPORTED int name(const char* path, int flags, ...) {                                     \
    va_list list;                                                                           \
    va_start(list, flags);                                                                  \
    const mode_t mode = mode_of(flags, list);                                               \
    va_end(list);                                                                           \
    return open_file(AT_FDCWD, path, flags, [&] { return NEXT(name)(path, flags, mode); }); \
  }
#define WRAP_OPENAT(name)                                                                         \
  EXPORTED int name(int folder, const char* path, int flags, ...) {                               \
    va_list list;                                                                                 \
    va_start(list, flags);                                                                        \
    const mode_t mode = mode_of(flags, list);                                                     \
    va_end(list);                                                                                 \
    return open_file(folder, path, flags, [&] { return NEXT(name)(folder, path, flags, mode); }); \
  }
// Writes through the FILE are seen only if the C++ library writes to its descriptor.
#define WRAP_FOPEN(name)                                                                      \
  EXPORTED FILE* name(const char* path, const char* mode) {                                   \
    const std::string full = *mode == 'r' ? std::string() : faults().path_at(AT_FDCWD, path); \
    if (!faults().concerns(full)) return NEXT(name)(path, mode);                              \
    FILE* file = nullptr;                                                                     \
    const int fd = open_to_write(full, *mode == 'w', [&] {                                    \
      file = NEXT(name)(path, mode);                                                          \
      return file == nullptr ? -1 : ::fileno(file);                                           \
    });                                                                                       \
    return fd < 0 ? nullptr : file;                                                           \
  }
#define WRAP_PWRITE(name)                                                                                    \
  EXPORTED ssize_t name(int fd, const void* data, size_t bytes, off_t offset) {                              \
    return write_data(fd, bytes, offset, [&](size_t count) { return NEXT(name)(fd, data, count, offset); }); \
  }
#define WRAP_RESIZE(name)                                                                            \
  EXPORTED int name(int fd, off_t size) {                                                            \
    const std::string path = faults().path_of(fd);                                                   \
    if (!faults().concerns(path)) return NEXT(name)(fd, size);                                       \
    const off_t before = size_of(fd);                                                                \
    return faults().perform(                                                                         \
        "truncate", path, [&] { return NEXT(name)(fd, size); },                                      \
        [&](int) { faults().unsynced().wrote(fd, before, size, std::min(before, size)); }, nullptr); \
  }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)
WRAP_PWRITE(pwrite)
WRAP_PWRITE(pwrite64)
WRAP_RESIZE(ftruncate)
WRAP_RESIZE(ftruncate64)

EXPORTED ssize_t write(int fd, const void* data, size_t bytes) {
  return write_data(fd, bytes, -1, [&](size_t count) { return NEXT(write)(fd, data, count); });
}

EXPORTED ssize_t writev(int fd, const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return write_data(fd, bytes, -1, [&](size_t wanted) {
    return wanted == bytes ? NEXT(writev)(fd, parts, count)
                           : NEXT(write)(fd, parts[0].iov_base, std::min(wanted, parts[0].iov_len));
  });
}

EXPORTED int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  const std::string path = faults().path_of(fd);
  if (!faults().concerns(path)) return NEXT(fallocate)(fd, mode, offset, bytes);
  const off_t before = size_of(fd);
  return faults().perform(
      "fallocate", path, [&] { return NEXT(fallocate)(fd, mode, offset, bytes); },
      [&](int) { faults().unsynced().wrote(fd, 0, 0, before); }, nullptr);
}

EXPORTED void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const auto map = [&] {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
  };
  const bool writes = fd >= 0 && (protection & PROT_WRITE) != 0 && (flags & MAP_SHARED) != 0;
  const std::string path = writes ? faults().path_of(fd) : std::string();
  if (!writes || !faults().concerns(path)) return map();
  const off_t size = size_of(fd), end = std::min(size, offset + static_cast<off_t>(bytes));
  const auto note = [&](intptr_t) { faults().unsynced().wrote(fd, offset, end, size); };
  return reinterpret_cast<void*>(faults().perform(
      "mmap", path, [&] { return reinterpret_cast<intptr_t>(map()); }, note, nullptr));
}

EXPORTED int fsync(int fd) {
  return sync_data("fsync", fd, [&] { return NEXT(fsync)(fd); });
}
EXPORTED int fdatasync(int fd) {
  return sync_data("fdatasync", fd, [&] { return NEXT(fdatasync)(fd); });
}

EXPORTED int rename(const char* from, const char* to) noexcept {
  return rename_path(faults().path_at(AT_FDCWD, from), faults().path_at(AT_FDCWD, to), 0,
                     [&] { return NEXT(rename)(from, to); });
}
EXPORTED int renameat(int from_fd, const char* from, int to_fd, const char* to) noexcept {
  return rename_path(faults().path_at(from_fd, from), faults().path_at(to_fd, to), 0,
                     [&] { return NEXT(renameat)(from_fd, from, to_fd, to); });
}
EXPORTED int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned int flags) noexcept {
  return rename_path(faults().path_at(from_fd, from), faults().path_at(to_fd, to), flags,
                     [&] { return NEXT(renameat2)(from_fd, from, to_fd, to, flags); });
}

EXPORTED int mkdir(const char* path, mode_t mode) noexcept {
  return make_name("mkdir", faults().path_at(AT_FDCWD, path), Unsynced::Kind::make_folder,
                   [&] { return NEXT(mkdir)(path, mode); });
}
EXPORTED int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return make_name("mkdir", faults().path_at(folder, path), Unsynced::Kind::make_folder,
                   [&] { return NEXT(mkdirat)(folder, path, mode); });
}
EXPORTED int symlink(const char* target, const char* path) noexcept {
  return make_name("symlink", faults().path_at(AT_FDCWD, path), Unsynced::Kind::create,
                   [&] { return NEXT(symlink)(target, path); });
}
EXPORTED int link(const char* from, const char* to) noexcept {
  return make_name("link", faults().path_at(AT_FDCWD, to), Unsynced::Kind::create,
                   [&] { return NEXT(link)(from, to); });
}
EXPORTED int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  return make_name("link", faults().path_at(to_fd, to), Unsynced::Kind::create,
                   [&] { return NEXT(linkat)(from_fd, from, to_fd, to, flags); });
}

EXPORTED int unlink(const char* path) noexcept {
  return remove_name(faults().path_at(AT_FDCWD, path), [&] { return NEXT(unlink)(path); });
}
EXPORTED int unlinkat(int folder, const char* path, int flags) noexcept {
  return remove_name(faults().path_at(folder, path), [&] { return NEXT(unlinkat)(folder, path, flags); });
}
EXPORTED int rmdir(const char* path) noexcept {
  return remove_name(faults().path_at(AT_FDCWD, path), [&] { return NEXT(rmdir)(path); });
}
EXPORTED int remove(const char* path) noexcept {
  return remove_name(faults().path_at(AT_FDCWD, path), [&] { return NEXT(remove)(path); });
}

EXPORTED int close(int fd) {
  const std::string path = faults().path_of(fd);
  if (!faults().concerns(path) || !is_for_writing(fd)) return NEXT(close)(fd);
  return faults().perform(
      "close", path, [&] { return NEXT(close)(fd); }, kNothing, nullptr);
}
