#include "block_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gputrain/checkpoint/manifest.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::checkpoint {
namespace {

constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // do not block on a pipe

/// Returns whether the middle of a file is in the page cache. The head often is, because its header was read.
bool is_cached(int descriptor) {
  struct stat status {};
  char byte = 0;
  iovec place{.iov_base = &byte, .iov_len = 1};
  return ::fstat(descriptor, &status) == 0 && ::preadv2(descriptor, &place, 1, status.st_size / 2, RWF_NOWAIT) == 1;
}

/// Reads from the disk use O_DIRECT: faster, because the kernel does not copy the data.
int open_to_read(const std::filesystem::path& path, BlockReader::From from) {
  const Descriptor cached(from == BlockReader::From::cache ? ::open(path.c_str(), kReadFlags) : -1);
  if (cached.get() < 0 || !is_cached(cached.get())) {
    const int descriptor = ::open(path.c_str(), kReadFlags | O_DIRECT);
    if (descriptor >= 0 || errno != EINVAL) return descriptor;
  }
  return ::open(path.c_str(), kReadFlags);
}

}  // namespace

BlockWriter::BlockWriter(AtomicFile& file) : file_(file) {}

BlockWriter::~BlockWriter() {
  pipe_.stop();
  if (thread_.joinable()) thread_.join();
}

void BlockWriter::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    if (block_ == nullptr) block_ = pipe_.begin_fill();
    const size_t count = std::min(bytes, BlockPipe::kBlockBytes - filled_);
    std::memcpy(block_ + filled_, next, count);
    filled_ += count;
    next += count;
    bytes -= count;
    if (filled_ == BlockPipe::kBlockBytes) hand_over();
  }
}

void BlockWriter::hand_over() {
  pipe_.end_fill(filled_);
  sealer_.add(block_, filled_);  // the thread only reads it too
  block_ = nullptr;
  filled_ = 0;
  if (thread_.joinable()) return;
  file_.bypass_page_cache(true);
  thread_ = device::start_thread("file writer", [this] { drain(); });
}

void BlockWriter::drain() {
  try {
    for (std::string_view block = pipe_.begin_drain(); !block.empty(); block = pipe_.begin_drain()) {
      file_.write(block);
      pipe_.end_drain();
    }
  } catch (...) {
    pipe_.fail(std::current_exception());
  }
}

FileSeal BlockWriter::finish() {
  if (thread_.joinable()) {
    pipe_.wait_until_drained();
    pipe_.stop();
    thread_.join();
    file_.bypass_page_cache(false);  // the rest may not be whole sectors
  }
  if (block_ != nullptr) {
    sealer_.add(block_, filled_);
    file_.write(std::string_view(std::exchange(block_, nullptr), filled_));
  }
  return sealer_.seal();
}

BlockReader::BlockReader(std::filesystem::path path, From from)
    : path_(std::move(path)), file_(open_to_read(path_, from)) {
  if (file_.get() < 0) throw Unreadable(std::string("cannot read: ") + std::strerror(errno), path_);
  thread_ = device::start_thread("file reader", [this] { fill(); });
}

BlockReader::~BlockReader() {
  pipe_.stop();
  thread_.join();
}

std::string_view BlockReader::next() {
  if (std::exchange(lent_, false)) pipe_.end_drain();
  const std::string_view block = pipe_.begin_drain();
  lent_ = !block.empty();
  return block;
}

void BlockReader::fill() {
  try {
    for (char* block = pipe_.begin_fill(); block != nullptr; block = pipe_.begin_fill()) {
      const size_t bytes = read_block(block);
      if (bytes == 0) return pipe_.stop();
      pipe_.end_fill(bytes);
    }
  } catch (...) {
    pipe_.fail(std::current_exception());
  }
}

/// Reads a block. Plain reads instead of mmap: a bad sector is then an error, not a SIGBUS.
size_t BlockReader::read_block(char* block) {
  size_t bytes = 0;
  while (bytes < BlockPipe::kBlockBytes) {
    const ssize_t got = ::read(file_.get(), block + bytes, BlockPipe::kBlockBytes - bytes);
    if (got == 0) break;
    if (got > 0) {
      bytes += static_cast<size_t>(got);
      continue;
    }
    if (errno == EINTR) continue;
    const int flags = ::fcntl(file_.get(), F_GETFL);
    // Some file systems accept O_DIRECT in open() and then fail to read; so does an unaligned file position.
    const bool is_direct = errno == EINVAL && flags >= 0 && (flags & O_DIRECT) != 0;
    if (is_direct && ::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT) == 0) continue;
    throw Unreadable(std::string("cannot read: ") + std::strerror(errno), path_);
  }
  return bytes;
}

FileSeal seal_of(const std::filesystem::path& path) {
  BlockReader reader(path, BlockReader::From::disk);
  Sealer sealer;
  for (std::string_view block = reader.next(); !block.empty(); block = reader.next())
    sealer.add(block.data(), block.size());
  return sealer.seal();
}

}  // namespace gputrain::checkpoint
