// Files that appear whole or not at all: written beside their name, synced, renamed into place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "gputrain/core/error.hpp"

namespace gputrain {

/// A file being written as `<path>.partial`. Until `commit` returns, what stood at `path` stays as it was; without a
/// commit the partial file is removed. One writer per path at a time.
/// Every failure throws Error(code) that names the path and the system's reason.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path path, ExitCode code);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// From now on whole blocks go straight to the disk, where the file system can: addresses, sizes and places must then
  /// be multiples of 4096 bytes. What is not is written through the cache.
  void bypass_page_cache(bool bypass) noexcept;

  /// Syncs the content, renames it to `path` and syncs the folder: after this a power cut cannot take it back.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_, partial_;
  ExitCode code_;
  int descriptor_ = -1;
};

/// Replaces the file at `path` by `content`, atomically and durably.
void write_file_atomically(const std::filesystem::path& path, std::string_view content, ExitCode code);

/// Makes what was written to a file durable; does nothing where there is no such file.
void sync_file(const std::filesystem::path& path, ExitCode code);

/// Makes names created in, renamed in or removed from a folder durable.
void sync_folder(const std::filesystem::path& folder, ExitCode code);

}  // namespace gputrain
