// Stochastic rounding of fp32 to bf16: up or down with the probability that makes the mean exact, so that updates below
// half a unit in the last place are not lost (Gupta et al., "Deep learning with limited numerical precision", ICML
// 2015). Random bits are those of Philox (Salmon et al., SC 2011): a pure function of a tensor's key, the step and the
// number of the element in its tensor. They depend neither on ranks nor on the device.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

/// The assignment of words to elements. A draw has four words.
enum class WordOrder {
  neighbours,  // four neighbours share a draw
  blocks       // i, i + 256, i + 512 and i + 768 of 1,024 share a draw
};

/// The use of the bits: each use has its own draws.
enum class RoundingUse { value = 0, averages = 1 };

/// Elements of a tensor, from number `begin` on, which is a multiple of four, and for WordOrder::blocks of 1,024.
struct RoundedElements {
  uint64_t key = 0;  // key of the tensor
  int64_t begin = 0;
};

/// Draws 32 random bits for each of `count` elements, as int64 [count] on step's device. `step`: 0-dim, the number of
/// updates including this one.
at::Tensor rounding_words(const RoundedElements& elements, int64_t count, const at::Tensor& step, WordOrder order,
                          RoundingUse use);

/// Rounds fp32 `values` to bf16: adds the low 16 of `bits`, an integer for each value, to the bits that are cut off.
/// Values that bf16 can hold stay exact; NaN stays NaN.
at::Tensor rounded_stochastically(const at::Tensor& values, const at::Tensor& bits);

}  // namespace gputrain::ops
