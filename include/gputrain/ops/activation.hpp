// Element-wise activations, dropout and pooling. Results have the type of their input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

// gelu: exact, with erf; gelu_tanh: GPT-2's approximation; hardswish: x min(max(x + 3, 0), 6) / 6
enum class Activation { relu, gelu, gelu_tanh, silu, tanh, hardswish };

/// Returns activation names for a job, in the order of the enumerators.
std::vector<std::string> activation_names();
/// Parses one of `activation_names()`; throws Error(usage) for any other name.
Activation activation_from_name(std::string_view name);

/// Returns whether `activate` writes its result into its input.
bool overwrites_input(Activation activation) noexcept;

/// Overwrites `x` if overwrites_input(activation): do not use it afterwards.
at::Tensor activate(at::Tensor x, Activation activation);

/// Computes silu(gate) * up (Shazeer, arXiv:2002.05202).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Zeroes elements with this probability and scales the others by 1 / (1 - probability).
at::Tensor dropout(const at::Tensor& x, double probability);

/// Pools x [batch, channels, height, width].
at::Tensor max_pool2d(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding = 0);
at::Tensor global_max_pool(const at::Tensor& x);      // -> [batch, channels]
at::Tensor global_average_pool(const at::Tensor& x);  // -> [batch, channels]

}  // namespace gputrain::ops
