// AdamW with averages of 8 bits for all tensors of an arena in one launch.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// An average: codes with a scale for each block of kScaled elements, or fp32 numbers and no scales.
struct Average {
  void* numbers;
  float* scales;
};

struct UpdatedTensor {
  void* value;
  const void* gradient;
  void* working;  // as in Update
  Average first, second;
  int64_t numel;
  int64_t first_block;  // blocks of the grid for earlier tensors
  float decay, lr_factor, since;
  uint64_t key;  // of the random bits that round bf16 values
};
inline constexpr int kScaled = 256;
/// Returns the number of the grid's blocks for a tensor.
int64_t grid_blocks_of(int64_t numel);

struct AdamW8bitUpdate {
  const UpdatedTensor* tensors;  // [count], on the device
  int count;
  int64_t blocks;   // of all tensors
  Element element;  // of values and gradients: fp32, or bf16, which is rounded stochastically
  Element working_element;
  const float* trees;  // [2, 256], on the device: the values of signed and of unsigned codes, ascending
  const float* lr;     // [1], on the device; so are the next three
  const float* divisor;
  const float* found_inf;  // as in Update
  const float* step;       // number of updates, including this one
  double beta1, beta2;
  float eps;
};
void adamw8bit(const AdamW8bitUpdate& p, Stream stream);

}  // namespace gputrain::ops::cuda
