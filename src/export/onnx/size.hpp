// Numbers in a forward pass that grow with the number of samples and their length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gputrain::app::onnx {

/// Size of the input of one forward pass.
struct Extent {
  int64_t samples = 0, length = 0;  // tokens of a sample; 0: samples have one size
};

/// Sum constant + batch * samples + length * tokens + both * samples * tokens.
struct Size {
  int64_t constant = 0, batch = 0, length = 0, both = 0;

  bool is_constant() const noexcept { return batch == 0 && length == 0 && both == 0; }
  int64_t at(const Extent& extent) const noexcept {
    return constant + batch * extent.samples + length * extent.length + both * extent.samples * extent.length;
  }
  friend bool operator==(const Size&, const Size&) = default;
};

/// Returns passes from which a Size can be derived, and one more to check it. `longest`: tokens that a sample may have;
/// 0: samples have one size. Throws Error(usage) for fewer than 4 tokens.
std::vector<Extent> extents_to_record(int64_t longest);

/// Returns the size that has these values in the passes of extents_to_record(); none: they are not of this form.
std::optional<Size> size_of(const std::vector<int64_t>& values, const std::vector<Extent>& extents);

}  // namespace gputrain::app::onnx
