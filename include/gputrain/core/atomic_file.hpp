// Files that are either complete or absent: written under a temporary name, synced, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "gputrain/core/error.hpp"

namespace gputrain {

/// Writes to `<path>.partial`. The file at `path` does not change before `commit`; without a commit the destructor
/// removes the partial file. Only one writer per path at a time.
/// Every failure throws Error(code) with the path and the system's reason.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path path, ExitCode code);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Writes at a place of its own; write() goes on where it was. Not while the page cache is bypassed.
  void write_at(int64_t offset, std::string_view text);

  /// Writes with O_DIRECT if `bypass` is true and the file system supports it. Addresses, sizes and offsets must then
  /// be multiples of 4096 bytes; any other write turns O_DIRECT off and goes through the page cache.
  void bypass_page_cache(bool bypass) noexcept;

  /// Syncs the content, renames it to `path` and syncs the folder, so that the file survives a power cut.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_, partial_;
  ExitCode code_;
  int descriptor_ = -1;
};

/// Replaces the file at `path` with `content`, atomically and durably.
void write_file_atomically(const std::filesystem::path& path, std::string_view content, ExitCode code);

/// Syncs a file to disk. Does nothing if the file does not exist.
void sync_file(const std::filesystem::path& path, ExitCode code);

/// Syncs a folder to disk, so that created, renamed and removed names in it are durable.
void sync_folder(const std::filesystem::path& folder, ExitCode code);

}  // namespace gputrain
