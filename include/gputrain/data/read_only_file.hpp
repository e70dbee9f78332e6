// A file read at any place by any thread. Sizes come from the file system, never from what the file says of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gputrain::data {

class ReadOnlyFile {
 public:
  /// Throws Error(data) when there is no such file, telling what there is instead.
  explicit ReadOnlyFile(std::string path);
  ReadOnlyFile(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile& operator=(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  ~ReadOnlyFile();

  const std::string& path() const noexcept { return path_; }
  int64_t size() const noexcept { return size_; }

  /// Fills `to` from `offset`. Throws Error(data) when the file ends before that.
  void read(int64_t offset, std::span<std::byte> to) const;

  /// Bytes [offset, offset + count), which must lie inside the file.
  std::vector<std::byte> read(int64_t offset, int64_t count) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

/// Throws Error(data): nothing at `path`, where `wanted` ("an image folder") was looked for; names what is nearest.
[[noreturn]] void throw_missing(const std::string& path, const std::string& wanted);

}  // namespace gputrain::data
