// How quantised matrices choose their codes; without LibTorch, because kernels read it too.
#pragma once

#include <array>
#include <cstdint>

namespace gputrain::ops {

/// How a 4-bit code is chosen: the code of a value is `first`, xor the changes whose bounds are below it.
struct CodeSteps {
  float bounds[15];     // halfway between neighbours of the code book, ascending
  int32_t changes[15];  // the codes on both sides of a bound, xor-ed
  int32_t first;
};

/// Values of a 4-bit block; all powers of two between them are sizes too.
inline constexpr int64_t kLeastInBlock = 32, kMostInBlock = 4096;

/// Scales that share a scale.
inline constexpr int64_t kScalesPerOuter = 256;

enum class Codebook;
const CodeSteps& steps_of(Codebook book);

}  // namespace gputrain::ops
