// A small fp64 network in an arena, its data, and how rank bodies report failures: enough to compare gradients exactly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/arena.hpp"

namespace gputrain::testing {

/// Four units with a weight and a bias each; a forward pass can skip the third.
struct SmallModel {
  std::vector<at::Tensor> parameters;
  device::Arena arena;

  explicit SmallModel(device::Kept kept = device::Kept::whole, int64_t shards = 1);
  at::Tensor loss_sum(const at::Tensor& inputs, const at::Tensor& targets, bool with_third = true) const;
  /// The layers add the weights' gradients in place, so autograd does not see them.
  bool adds_to_place = false;
  void clear_gradients();
  void descend(double rate);
};

/// Rows [begin, end) of a fixed data set with 8 inputs and 3 targets; depends on `step`.
struct Rows {
  at::Tensor inputs, targets;
};
Rows rows(int64_t step, int64_t begin, int64_t end);

/// The largest difference between two tensors; 0 if they are empty.
double distance(const at::Tensor& a, const at::Tensor& b);

/// The elements of `flat`, a buffer of the whole arena, that the rank owns, one piece after the other.
at::Tensor owned_of(const device::Arena& arena, const at::Tensor& flat);

/// Runs a body on `world` ranks; every rank must succeed.
void expect_success(const std::string& body, int world, const std::map<std::string, std::string>& extra = {});

/// The return value of a body that failed; prints what went wrong.
int fail(const char* what, double value);

/// An integer from the body's environment.
int64_t given(const char* name);

}  // namespace gputrain::testing
