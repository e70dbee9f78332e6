// AdamW whose averages have 8 bits, by one kernel of ours for all tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/flat_update.hpp"

namespace gputrain::ops {

/// Elements that share a scale.
inline constexpr int64_t kQuantizedBlock = 256;

/// Returns the 256 values of dynamic tree quantization in [-1, 1], or in [0, 1], in ascending order (Dettmers,
/// arXiv:1511.04561): seven decades, each with twice as many values as the one below it, evenly spread; and 0 and 1.
std::vector<double> dynamic_tree(bool is_signed);

/// A tensor, flat and contiguous, with its averages: codes and the scale of each block, or without scales fp32 numbers.
struct BlockwiseTensor {
  at::Tensor value, gradient;  // fp32, or both bf16: the value is then rounded stochastically
  at::Tensor first, first_scales, second, second_scales;
  at::Tensor copy = {};  // 16 bits: receives the new values too; undefined: there is none
  double weight_decay = 0, lr_factor = 1;
  double since = 0;  // as in FlatStretch
  uint64_t key = 0;  // of RoundedElements

  bool is_narrow() const { return first_scales.defined(); }
};

class BlockwiseUpdate {
 public:
  /// Makes one tensor's update in ATen's way.
  using Reference = std::function<void(const BlockwiseTensor&, const UpdateScalars&)>;

  explicit BlockwiseUpdate(std::vector<BlockwiseTensor> tensors) : tensors_(std::move(tensors)) {}

  /// Updates by our kernels. Returns false if it did nothing and ATen has to make the update, as FlatUpdate::adamw().
  /// `step`: 0-dim fp32, the updates including this one. `reference` makes the update on copies, to which ours is
  /// compared.
  bool adamw(const at::Tensor& step, const UpdateScalars& scalars, const AdamWRule& rule, const Reference& reference);

 private:
  std::vector<BlockwiseTensor> tensors_;
  at::Tensor table_, trees_;  // on the device: the tensors as bytes, and both trees
  int64_t blocks_ = 0;
  friend struct BlockwiseLaunch;
};

}  // namespace gputrain::ops
