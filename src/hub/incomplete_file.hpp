// File that is still being fetched: what an earlier call received is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "digest.hpp"
#include "gputrain/core/descriptor.hpp"

namespace gputrain::hub {

/// Incomplete file. Every failure throws Error(environment) with the path and the system's reason.
class IncompleteFile {
 public:
  /// Creates the file, or reads its content.
  explicit IncompleteFile(std::filesystem::path path);

  uint64_t size() const noexcept { return size_; }
  /// Returns whether an earlier call wrote a part of it.
  bool is_continued() const noexcept { return is_continued_; }

  void append(std::string_view bytes);
  /// Drops all content.
  void restart();
  /// Returns the SHA-256 of the content in hex digits. Call it once, at the end.
  std::string digest() { return digest_.finish(); }
  /// Syncs the file and gives it its name.
  void move_to(const std::filesystem::path& path);

 private:
  void read_own();
  [[noreturn]] void fail(const std::string& action) const;

  std::filesystem::path path_;
  Descriptor file_;
  Sha256 digest_;
  uint64_t size_ = 0;
  bool is_continued_ = false;
};

}  // namespace gputrain::hub
