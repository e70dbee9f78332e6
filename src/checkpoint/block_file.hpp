// Large files in order at the speed of the disk: a thread does the input or output while the caller works on the block
// before or after.
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

/// Writes past the page cache where the file system can: on its way through it a checkpoint would push out the data set
/// that training reads, and take twice as long.
class BlockWriter {
 public:
  /// `file` outlives this, and is committed after finish().
  explicit BlockWriter(AtomicFile& file);
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;
  ~BlockWriter();

  /// Throws what writing to the file throws, for this block or an earlier one.
  void write(const void* data, size_t bytes);

  /// Returns when everything has been written to the file, with its size and hash.
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
    cache,  // what this machine has read or written before may come from memory
    disk,   // what the disk really holds, where the file system can tell
  };

  /// Throws Unreadable when the file cannot be opened.
  BlockReader(std::filesystem::path path, From from);
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  ~BlockReader();

  /// The bytes that follow, valid until the next call; empty at the end of the file. Throws Unreadable.
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

/// Reads a whole file from the disk. Throws Unreadable.
FileSeal seal_of(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
