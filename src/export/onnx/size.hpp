// Numbers of a forward pass that grow with how many samples it reads and how long they are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gputrain::app::onnx {

/// What one forward pass reads.
struct Extent {
  int64_t samples = 0, length = 0;  // tokens of a sample; 0: samples have one size
};

/// constant + batch * samples + length * tokens + both * samples * tokens
struct Size {
  int64_t constant = 0, batch = 0, length = 0, both = 0;

  bool is_constant() const noexcept { return batch == 0 && length == 0 && both == 0; }
  int64_t at(const Extent& extent) const noexcept {
    return constant + batch * extent.samples + length * extent.length + both * extent.samples * extent.length;
  }
  friend bool operator==(const Size&, const Size&) = default;
};

/// Passes from which a Size can be told, and one more to check it with. `longest`: tokens that a sample may have; 0:
/// samples have one size. Throws Error(usage) for fewer than 4 tokens.
std::vector<Extent> extents_to_record(int64_t longest);

/// The size that has these values in the passes of extents_to_record(); none: they are not of this form.
std::optional<Size> size_of(const std::vector<int64_t>& values, const std::vector<Extent>& extents);

}  // namespace gputrain::app::onnx
