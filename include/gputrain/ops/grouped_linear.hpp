// Dense layers of which each row of x goes through one, as in a mixture of experts. The host never learns how many rows
// a layer gets: rows lie in blocks of one size, and sizes depend on the number of rows alone, so that a GPU neither
// waits nor needs another CUDA graph for another choice of layers.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/frozen_linear.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// Rows in blocks, each with rows of one group; the rest of a block is zeros (Gale et al., MegaBlocks,
/// arXiv:2211.15841).
class RowBlocks {
 public:
  /// `groups` int64 [rows]: the group of each row, from 0 to `count` - 1.
  RowBlocks(const at::Tensor& groups, int64_t count);

  /// Arranges x [rows, channels] -> [blocks, rows of a block, channels].
  at::Tensor arranged(const at::Tensor& x) const;
  /// Brings y [blocks, rows of a block, channels] -> [rows, channels] into the order before arranged().
  at::Tensor in_order(const at::Tensor& y) const;
  /// Returns the group of each block, int64 [blocks].
  const at::Tensor& groups() const noexcept { return groups_; }

 private:
  int64_t rows_in_block_, blocks_;
  at::Tensor groups_;
  at::Tensor places_;  // int64 [rows]: place of each row among all rows of all blocks
};

/// Returns whether grouped_linear() takes these weights as they are: the values that it reads lie in one storage, at
/// equal distances.
bool lie_evenly(const Policy& policy, const std::vector<at::Tensor>& weights);

/// Computes y = x W^T for each block, with the weight [out, in] of its group; x [blocks, rows, in] -> [blocks, rows,
/// out]. Weights and their gradients are as in linear().
at::Tensor grouped_linear(const Policy& policy, const at::Tensor& x, const at::Tensor& groups,
                          const std::vector<at::Tensor>& weights);

/// Computes the same with weights that are not trained. Those of all groups are in memory at once, for one product.
at::Tensor grouped_linear(const Policy& policy, const at::Tensor& x, const at::Tensor& groups,
                          const std::vector<FrozenMatrix>& weights);

}  // namespace gputrain::ops
