// The safetensors format (huggingface/safetensors). Reads validate everything; writes are atomic.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/checkpoint/safetensors_header.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

using Metadata = std::map<std::string, std::string>;

/// A memory-mapped file. Tensors are views of the mapping and keep it alive.
class SafetensorsFile {
 public:
  /// Throws Error(code) for a malformed file: header larger than 100 MB or than the file, holes, overlaps, duplicate
  /// keys, sizes that do not match dtype and shape, trailing bytes.
  explicit SafetensorsFile(const std::filesystem::path& path, ExitCode code = ExitCode::data);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::vector<std::string> names() const;  // sorted by byte value
  bool has(const std::string& name) const { return entries_.contains(name); }
  const Metadata& metadata() const noexcept { return metadata_; }

  /// Returns a view of the file; writes change only this process's copy. Throws Error(code) if absent.
  at::Tensor tensor(const std::string& name) const;

 private:
  struct Mapping;
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> sizes;
    uint64_t begin, end;  // bytes from the start of the file
  };
  std::filesystem::path path_;
  ExitCode code_;
  std::shared_ptr<const Mapping> mapping_;
  std::map<std::string, Entry> entries_;
  Metadata metadata_;
};

/// Reads only the header of a file. Throws Error(code) like SafetensorsFile.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, ExitCode code);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Returns the size of the file that write_safetensors() would write.
uint64_t safetensors_bytes(const NamedTensors& tensors);

/// Returns the seal of the file that write_safetensors would write without metadata, and of each tensor's bytes.
FileSeal seal_of_safetensors(const NamedTensors& tensors, std::map<std::string, FileSeal>& of_tensors);

/// Writes tensors (any device, any strides) and metadata to a temporary file, syncs it and renames it to `path`. The
/// bytes equal those of the safetensors package, whatever the order of `tensors`. On a disk error throws
/// Error(checkpoint) and leaves an existing file unchanged.
FileSeal write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const Metadata& metadata = {});

}  // namespace gputrain::checkpoint
