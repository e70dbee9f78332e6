// A small fp64 network in an arena, and the data its ranks share: enough to compare gradients exactly.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/arena.hpp"

namespace gputrain::testing {

/// Four units of a weight and a bias; the third can be left out of a forward pass.
struct SmallModel {
  std::vector<at::Tensor> parameters;
  device::Arena arena;

  SmallModel();
  at::Tensor loss_sum(const at::Tensor& inputs, const at::Tensor& targets, bool with_third = true) const;
  void clear_gradients();
  void descend(double rate);
};

/// Rows [begin, end) of a fixed data set of 8 inputs and 3 targets each; `step` varies it.
struct Rows {
  at::Tensor inputs, targets;
};
Rows rows(int64_t step, int64_t begin, int64_t end);

/// The largest difference between two tensors.
double distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace gputrain::testing
