// GGUF file format, version 3 (ggml-org/ggml, docs/gguf.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace gputrain::app {

/// Types of tensors by their number in a file.
enum class GgmlType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

using GgufValue = std::variant<bool, uint32_t, int32_t, float, std::string, std::vector<std::string>,
                               std::vector<int32_t>, std::vector<float>>;

struct GgufTensor {
  std::string name;
  std::vector<int64_t> sizes;  // outermost first, as in LibTorch
  GgmlType type = GgmlType::f32;
  std::function<std::string()> bytes;  // function that is called when the tensor is written
};

/// Returns the number of bytes of a tensor. A q8_0 tensor's innermost size is a multiple of 32.
uint64_t stored_bytes(const GgufTensor& tensor);

struct GgufFile {
  std::vector<std::pair<std::string, GgufValue>> values;
  std::vector<GgufTensor> tensors;

  /// Writes the file; it appears when it is complete. Throws Error(environment).
  void write(const std::filesystem::path& path) const;
};

}  // namespace gputrain::app
