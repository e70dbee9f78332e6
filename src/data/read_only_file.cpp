#include "gputrain/data/read_only_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "gputrain/config/names.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

namespace fs = std::filesystem;

/// Returns the entry of `folder` with the name nearest to `name`; empty if none is near.
std::string nearest_entry(const fs::path& folder, const std::string& name) {
  constexpr size_t kMostEntries = 10000;
  std::vector<std::string> entries;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end && entries.size() < kMostEntries;) {
    entries.push_back(entry->path().filename().string());
    entry.increment(ignored);
    if (ignored) break;
  }
  const std::vector<std::string> near = config::nearest(name, entries);
  return near.empty() ? "" : near.front();
}

/// Lists the first entries of a folder by name: "cat, dog and 3 more".
std::string entries_of(const fs::path& folder) {
  constexpr size_t kMostShown = 5;
  std::set<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored))
    names.insert(entry->path().filename().string());
  if (names.empty()) return "nothing in it";
  std::string list;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == kMostShown) return list + " and " + std::to_string(names.size() - shown) + " more";
    list += (shown++ == 0 ? "" : ", ") + name;
  }
  return list;
}

[[noreturn]] void throw_system_error(const std::string& path, const std::string& what) {
  throw Error(ExitCode::data, {.what = what + ": " + std::strerror(errno), .where = path});
}

}  // namespace

void throw_missing(const std::string& path, const std::string& wanted) {
  std::error_code ignored;
  if (fs::status(path, ignored).type() != fs::file_type::not_found && ignored)
    throw Error(ExitCode::environment, {.what = "cannot be looked for: " + ignored.message(), .where = path});
  fs::path existing = fs::absolute(path, ignored).lexically_normal(), missing;
  while (!existing.empty() && !fs::exists(existing, ignored) && existing != existing.root_path()) {
    missing = existing.filename();
    existing = existing.parent_path();
  }
  std::string hint;
  if (!missing.empty()) {
    const std::string near = nearest_entry(existing, missing.string());
    hint = "'" +
           (near.empty() ? existing.string() + "' has " + entries_of(existing) + ", and no '" + missing.string()
                         : (existing / near).string()) +
           "'";
  }
  throw Error(ExitCode::data, {.what = "no such file or folder; looked for " + wanted, .where = path, .hint = hint});
}

ReadOnlyFile::ReadOnlyFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: without it, open() of a named pipe waits for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw_missing(path_, "a file");
    throw_system_error(path_, "cannot open the file");
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    throw Error(ExitCode::data, {.what = S_ISDIR(status.st_mode) ? "this is a folder; a file is expected"
                                                                 : "this is not a regular file",
                                 .where = path_});
  }
  size_ = status.st_size;
}

ReadOnlyFile::ReadOnlyFile(ReadOnlyFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

ReadOnlyFile& ReadOnlyFile::operator=(ReadOnlyFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

ReadOnlyFile::~ReadOnlyFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void ReadOnlyFile::read(int64_t offset, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(descriptor_, to.data() + done, to.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error(path_, "cannot read the file");
    if (got == 0) throw Error(ExitCode::data, {.what = "the file ends too early: it is cut off", .where = path_});
    done += static_cast<size_t>(got);
  }
}

std::vector<std::byte> ReadOnlyFile::read(int64_t offset, int64_t count) const {
  GPUTRAIN_ASSERT(offset >= 0 && count >= 0 && count <= size_ - offset, "a read outside the file");
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  read(offset, bytes);
  return bytes;
}

FileKind kind_of(const ReadOnlyFile& file) {
  std::string begin(static_cast<size_t>(std::min<int64_t>(file.size(), kFileKindBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return file_kind(begin);
}

}  // namespace gputrain::data
