// A file for random reads from any thread. Its size comes from the file system, never from the file's content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gputrain/core/file_kind.hpp"

namespace gputrain::data {

class ReadOnlyFile {
 public:
  /// Throws Error(data) if the file does not exist; the hint names the nearest path that does.
  explicit ReadOnlyFile(std::string path);
  ReadOnlyFile(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile& operator=(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  ~ReadOnlyFile();

  const std::string& path() const noexcept { return path_; }
  int64_t size() const noexcept { return size_; }

  /// Fills `to` from `offset`. Throws Error(data) if the file ends too early.
  void read(int64_t offset, std::span<std::byte> to) const;

  /// Returns bytes [offset, offset + count), which must lie inside the file.
  std::vector<std::byte> read(int64_t offset, int64_t count) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

/// Tells the kind of a file by its first bytes.
FileKind kind_of(const ReadOnlyFile& file);

/// Throws Error(data): `path` does not exist. `wanted` says what it should be ("an image folder"); the hint helps.
[[noreturn]] void throw_missing(const std::string& path, const std::string& wanted);

}  // namespace gputrain::data
