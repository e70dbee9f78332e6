#include "power_cut.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace torture {
namespace {

/// Our own changes use system calls, to bypass the wrapped functions, also inside the C++ library.
int really_rename(const std::string& from, const std::string& to, unsigned int flags = 0) {
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}

int really_unlink(const std::string& path, int flags = 0) {
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path.c_str(), flags));
}

void really_remove_all(const std::string& path) {
  if (really_unlink(path) == 0 || really_unlink(path, AT_REMOVEDIR) == 0) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) really_remove_all(entry.path().string());
  really_unlink(path, AT_REMOVEDIR);
}

void move_prefix(std::string& path, const std::string& from, const std::string& to) {
  path = to + path.substr(from.size());
}

}  // namespace

bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

void Unsynced::wrote(int fd, off_t begin, off_t end, off_t size_before) {
  Data& data = data_of(fd, size_before);
  if (end > begin) data.ranges.emplace_back(begin, end);
}

std::string Unsynced::keep(const std::string& path) {
  struct stat status {};
  if (spare_.empty() || ::lstat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return {};
  std::string backup = spare_ + "/" + std::to_string(::getpid()) + "-" + std::to_string(++backups_);
  return ::syscall(SYS_linkat, AT_FDCWD, path.c_str(), AT_FDCWD, backup.c_str(), 0) == 0 ? backup : std::string();
}

void Unsynced::synced_file(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  const auto found = files_.find({status.st_dev, status.st_ino});
  if (found == files_.end()) return;
  ::syscall(SYS_close, found->second.fd);
  files_.erase(found);
}

void Unsynced::changed(Name name) {
  struct stat status {};
  if (log_ >= 0 && ::fstat(log_, &status) == 0) name.logged = status.st_size;
  names_.push_back(std::move(name));
}

void Unsynced::synced_folder(const std::string& folder, off_t until) {
  for (size_t i = names_.size(); i-- > 0;) {
    const bool is_older = names_[i].logged < until;
    if (is_older && std::filesystem::path(names_[i].path).parent_path() == folder) i -= make_durable(i);
  }
}

void Unsynced::learn_of_syncs_by_others(const std::string& log, const std::string& rank) {
  constexpr std::string_view kSync = " fsync ";
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const size_t sync = line.find(kSync);
    if (sync == std::string::npos || line.starts_with("fault ") || line.starts_with(rank + " ")) continue;
    synced_folder(line.substr(sync + kSync.size()), lines.tellg());
  }
}

void Unsynced::lose(uint64_t seed) {
  std::mt19937_64 random(seed);
  lose_data(random);
  // Either loses all changes after some point, like a journal, or loses each at random.
  const bool is_journal = random() % 2 == 0;
  const size_t first_lost = random() % (names_.size() + 1);
  for (size_t i = names_.size(); i-- > 0;) {
    const bool is_lost = is_journal ? i >= first_lost : random() % 2 == 0;
    if (is_lost) {
      undo(names_[i]);
    } else {
      i -= make_durable(i);
    }
  }
}

Unsynced::Data& Unsynced::data_of(int fd, off_t size_before) {
  struct stat status {};
  ::fstat(fd, &status);
  const auto [place, is_new] = files_.try_emplace({status.st_dev, status.st_ino});
  if (is_new) place->second = {.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 500), .durable_size = size_before, .ranges = {}};
  place->second.durable_size = std::min(place->second.durable_size, size_before);
  return place->second;
}

void Unsynced::lose_data(std::mt19937_64& random) {
  constexpr off_t kPageBytes = 4096;
  static constexpr std::array<char, kPageBytes> kZeros{};
  for (auto& [inode, data] : files_) {
    const uint64_t how = random() % 3;  // 0: nothing is lost; 1: some pages; 2: everything
    if (how == 0) continue;
    ::fcntl(data.fd, F_SETFL, ::fcntl(data.fd, F_GETFL) & ~O_DIRECT);  // writes of less than a sector
    for (const auto& [begin, end] : data.ranges) {
      for (off_t page = begin; page < end; page = (page / kPageBytes + 1) * kPageBytes) {
        const off_t page_end = std::min(end, (page / kPageBytes + 1) * kPageBytes);
        if (how == 1 && random() % 2 == 0) continue;
        ::syscall(SYS_pwrite64, data.fd, kZeros.data(), static_cast<size_t>(page_end - page), page);
      }
    }
    if (how == 2) ::syscall(SYS_ftruncate, data.fd, data.durable_size);
  }
}

/// Makes change `index` permanent. Returns how many earlier changes that removed.
size_t Unsynced::make_durable(size_t index) {
  const Name name = names_[index];
  names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(index));
  if (!name.backup.empty()) really_unlink(name.backup);
  const bool moves = name.kind == Kind::rename || name.kind == Kind::exchange;
  return moves ? move_earlier(index, name) : 0;
}

/// After a permanent rename, earlier changes refer to the new path. Returns how many it removed.
size_t Unsynced::move_earlier(size_t index, const Name& rename) {
  size_t gone = 0;
  for (size_t i = index; i-- > 0;) {
    Name& earlier = names_[i];
    const bool was_made = earlier.kind == Kind::create || earlier.kind == Kind::make_folder;
    if (was_made && rename.kind == Kind::rename && earlier.path == rename.from) {
      names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));  // its entry is the renamed one
      ++gone;
      continue;
    }
    for (std::string* path : {&earlier.path, &earlier.from}) {
      if (is_below(*path, rename.from)) {
        move_prefix(*path, rename.from, rename.path);
      } else if (rename.kind == Kind::exchange && is_below(*path, rename.path)) {
        move_prefix(*path, rename.path, rename.from);
      }
    }
  }
  return gone;
}

void Unsynced::undo(const Name& name) {
  switch (name.kind) {
    case Kind::create:
      really_unlink(name.path);
      break;
    case Kind::make_folder:
      really_remove_all(name.path);
      break;
    case Kind::exchange:
      really_rename(name.from, name.path, RENAME_EXCHANGE);
      break;
    case Kind::remove_folder:
      ::syscall(SYS_mkdirat, AT_FDCWD, name.path.c_str(), 0777);
      break;
    case Kind::rename:
      really_rename(name.path, name.from);
      [[fallthrough]];
    case Kind::unlink:
      if (!name.backup.empty()) really_rename(name.backup, name.path);
  }
}

}  // namespace torture
