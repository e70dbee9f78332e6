// Sequential I/O on large files at disk speed: a thread does the I/O while the caller works on the previous or next
// block.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <thread>

#include "block_pipe.hpp"
#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/descriptor.hpp"

namespace gputrain::checkpoint {

/// Bypasses the page cache if the file system can. Through the cache, a checkpoint would evict the training data and
/// take twice as long.
class BlockWriter {
 public:
  /// `file` must outlive this object. Commit it after finish().
  explicit BlockWriter(AtomicFile& file);
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;
  ~BlockWriter();

  /// Throws the file's write error for this block or an earlier one.
  void write(const void* data, size_t bytes);

  /// Waits until everything is written to the file; returns its size and hash.
  FileSeal finish();

 private:
  void hand_over();
  void drain();

  AtomicFile& file_;
  Sealer sealer_;
  BlockPipe pipe_;
  char* block_ = nullptr;  // being filled
  size_t filled_ = 0;
  std::thread thread_;  // started with the first full block
};

class BlockReader {
 public:
  enum class From {
    cache,  // the page cache may serve data that this machine read or wrote before
    disk,   // the bytes that are really on the disk, if the file system allows it
  };

  /// Throws Unreadable if the file cannot be opened.
  BlockReader(std::filesystem::path path, From from);
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  ~BlockReader();

  /// Returns the next bytes, valid until the next call; empty at the end of the file. Throws Unreadable.
  std::string_view next();

 private:
  void fill();
  size_t read_block(char* block);

  std::filesystem::path path_;
  Descriptor file_;
  BlockPipe pipe_;
  bool lent_ = false;  // the caller has a block
  std::thread thread_;
};

/// Reads a whole file from the disk and returns its seal. Throws Unreadable.
FileSeal seal_of(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
