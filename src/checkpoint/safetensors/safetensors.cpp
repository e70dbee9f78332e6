#include "gputrain/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtypes.hpp"
#include "gputrain/checkpoint/safetensors_header.hpp"
#include "gputrain/core/descriptor.hpp"

namespace gputrain::checkpoint {
namespace {

[[noreturn]] void refuse_to_read(const std::filesystem::path& path, const std::string& problem, ExitCode code) {
  throw Error(code, {.what = "cannot read: " + problem, .where = path.string()});
}

}  // namespace

struct SafetensorsFile::Mapping {
  Mapping(const std::filesystem::path& path, ExitCode code) {
    // O_NONBLOCK: do not wait for a writer if the path is a pipe.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) refuse_to_read(path, std::strerror(errno), code);
    struct stat status {};
    const bool is_file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    bytes = is_file ? static_cast<size_t>(status.st_size) : 0;
    // Private and writable: an in-place operation on one of our tensors changes this process's memory, never the file.
    if (bytes > 0) begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    if (!is_file) refuse_to_read(path, "not a file", code);
    if (begin == MAP_FAILED) refuse_to_read(path, std::strerror(error), code);
  }
  ~Mapping() {
    if (bytes > 0) ::munmap(begin, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string_view content() const { return {static_cast<const char*>(begin), bytes}; }

  /// Notes that somebody has a tensor whose bytes begin there.
  void take(uint64_t at) const {
    const std::scoped_lock lock(mutex_);
    ++users_[at];
  }
  /// Notes that one of them does no longer. After the last, gives the pages that only this tensor fills back to the
  /// system, so that a model that is read tensor by tensor is never whole in memory. They stay in the page cache.
  void leave(uint64_t at, uint64_t end) const {
    const std::scoped_lock lock(mutex_);
    if (--users_[at] > 0) return;
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t first = (at + page - 1) / page * page, last = end / page * page;
    if (last > first) ::madvise(static_cast<char*>(begin) + first, last - first, MADV_DONTNEED);
  }

  void* begin = nullptr;
  size_t bytes = 0;

 private:
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, int64_t> users_;  // number of holders of a tensor by its first byte
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ExitCode code)
    : path_(path), code_(code), mapping_(std::make_shared<const Mapping>(path, code)) {
  SafetensorsHeader header = parse_safetensors(mapping_->content(), mapping_->bytes, path.string(), code);
  for (StoredTensor& tensor : header.tensors) {
    entries_.emplace(std::move(tensor.name), Entry{.type = scalar_type_of(tensor.dtype),
                                                   .sizes = std::move(tensor.sizes),
                                                   .begin = tensor.begin,
                                                   .end = tensor.end});
  }
  metadata_ = std::move(header.metadata);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw Error(code_, {.what = "there is no tensor '" + name + "'", .where = path_.string()});
  const Entry& entry = found->second;
  const auto options = at::TensorOptions().dtype(entry.type);
  char* data = static_cast<char*>(mapping_->begin) + entry.begin;
  if (entry.begin == entry.end) return at::empty(entry.sizes, options);
  if (entry.type == at::kBool && !are_truth_values(data, entry.end - entry.begin)) {
    throw Error(code_, {.what = "tensor '" + name + "' has bool values other than 0 and 1", .where = path_.string()});
  }
  // The format does not align headers or offsets to the element size.
  if (entry.begin % at::elementSize(entry.type) != 0) {
    at::Tensor copy = at::empty(entry.sizes, options);
    std::memcpy(copy.mutable_data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  mapping_->take(entry.begin);
  return at::from_blob(
      data, entry.sizes,
      [mapping = mapping_, begin = entry.begin, end = entry.end](void*) { mapping->leave(begin, end); }, options);
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, ExitCode code) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) refuse_to_read(path, std::strerror(errno), code);
  if (!S_ISREG(status.st_mode)) refuse_to_read(path, "not a file", code);
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  std::string front;
  for (uint64_t wanted = front_bytes(front, file_bytes); front.size() < wanted;
       wanted = front_bytes(front, file_bytes)) {
    const size_t begin = front.size();
    front.resize(wanted);
    const ssize_t got = ::pread(file.get(), front.data() + begin, wanted - begin, static_cast<off_t>(begin));
    if (got < 0 && errno != EINTR) refuse_to_read(path, std::strerror(errno), code);
    if (got == 0) refuse_to_read(path, "it was truncated while it was read", code);
    front.resize(begin + static_cast<size_t>(std::max<ssize_t>(0, got)));
  }
  return parse_safetensors(front, file_bytes, path.string(), code);
}

}  // namespace gputrain::checkpoint
