// The safetensors format (huggingface/safetensors): reading trusts nothing, writing is atomic.
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

/// A file mapped into memory; tensors are views of the mapping and keep it alive.
class SafetensorsFile {
 public:
  /// Throws Error(code) for anything but a well-formed file: header over 100 MB or over the file, holes, overlaps,
  /// duplicate keys, sizes that do not match dtype and shape, trailing bytes.
  explicit SafetensorsFile(const std::filesystem::path& path, ExitCode code = ExitCode::data);

  std::vector<std::string> names() const;  // in order of their bytes
  const Metadata& metadata() const noexcept { return metadata_; }

  /// A view of the file; writing to it changes this process's copy only. Error(code) when absent.
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

/// What a file holds, by its header alone. Throws Error(code) as SafetensorsFile does.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, ExitCode code);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// How large write_safetensors would make the file.
uint64_t safetensors_bytes(const NamedTensors& tensors);

/// The seal of the file that write_safetensors would make without metadata, and of each tensor's bytes by name.
FileSeal seal_of_safetensors(const NamedTensors& tensors, std::map<std::string, FileSeal>& of_tensors);

/// Writes tensors (any device, any strides) and metadata beside `path`, syncs, and renames into place. The bytes are
/// those of the safetensors package, whatever the order of `tensors`. Throws Error(checkpoint) and leaves an existing
/// file untouched when the disk refuses.
FileSeal write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const Metadata& metadata = {});

}  // namespace gputrain::checkpoint
