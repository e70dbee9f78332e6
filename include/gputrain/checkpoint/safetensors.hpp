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

namespace gputrain::checkpoint {

/// A file mapped into memory; tensors are views of the mapping and keep it alive.
class SafetensorsFile {
 public:
  /// Throws Error(data) for anything but a well-formed file: header over 100 MB or over the file, holes, overlaps,
  /// duplicate keys, sizes that do not match dtype and shape, trailing bytes.
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;             // in order of their bytes
  bool contains(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;   // read-only view; Error(data) when absent
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

 private:
  struct Mapping;
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> sizes;
    uint64_t begin, end;
  };
  std::filesystem::path path_;
  std::shared_ptr<const Mapping> mapping_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes tensors (any device, any strides) beside `path`, syncs, and renames into place.
/// Throws Error(checkpoint) and leaves an existing file untouched when the disk refuses.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace gputrain::checkpoint
