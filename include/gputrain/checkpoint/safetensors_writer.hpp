// Writes a safetensors file tensor by tensor, in any order, so that they need not all be in memory at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::checkpoint {

/// The file at the path does not change before `commit`; without a commit the destructor removes what was written.
/// Every failure of the disk throws Error(checkpoint).
class SafetensorsWriter {
 public:
  /// `tensors` says names, types and sizes; it needs no values.
  SafetensorsWriter(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  std::vector<std::string> names() const;  // in the order of their data, in which writing is fastest

  /// Call once for each tensor, which may be on any device and have any strides. It is not kept.
  void write(const std::string& name, const at::Tensor& values);

  /// Call after all tensors: syncs the file and renames it to its path. Its bytes do not depend on the order of
  /// writing. Returns its seal if they came in the order of names(); otherwise none, which only reading the file would
  /// give.
  std::optional<FileSeal> commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::checkpoint
