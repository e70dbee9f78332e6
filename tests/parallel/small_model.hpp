// A small fp64 network in an arena, the data its ranks share, and how their bodies tell what went wrong: enough to
// compare gradients exactly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/arena.hpp"

namespace gputrain::testing {

/// Four units of a weight and a bias; the third can be left out of a forward pass.
struct SmallModel {
  std::vector<at::Tensor> parameters;
  device::Arena arena;

  explicit SmallModel(device::Gradients kept = device::Gradients::whole);
  at::Tensor loss_sum(const at::Tensor& inputs, const at::Tensor& targets, bool with_third = true) const;
  /// Weights' gradients are added to their place by the layers, and autograd sees none of them.
  bool adds_to_place = false;
  void clear_gradients();
  void descend(double rate);
};

/// Rows [begin, end) of a fixed data set of 8 inputs and 3 targets each; `step` varies it.
struct Rows {
  at::Tensor inputs, targets;
};
Rows rows(int64_t step, int64_t begin, int64_t end);

/// The largest difference between two tensors; 0 where they are empty.
double distance(const at::Tensor& a, const at::Tensor& b);

/// Runs a body on so many ranks, of which each must end well.
void expect_success(const std::string& body, int world, const std::map<std::string, std::string>& extra = {});

/// What a body returns that says what went wrong.
int fail(const char* what, double value);

/// A whole number from the environment that a body was given.
int64_t given(const char* name);

}  // namespace gputrain::testing
