// AdamW whose averages have 8 bits (Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022): an
// element is a value of a tree of 256, times the largest magnitude in its block of 256 elements. Weights in bf16
// are rounded stochastically (Gupta et al., ICML 2015).
// Registers: adamw8bit_kernel 48
#include "adamw8bit.hpp"

#include <cmath>

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kCodes = 256, kTurns = 16;  // blocks of kScaled elements that a block of the grid updates

struct Shared {
  float tree[2][kCodes];
  float largest[2][kScaled / kWarpSize];  // of the warps
};

/// Finds the largest of all threads' values; two at once. A barrier comes first, so that `largest` may be used again.
__device__ inline void block_max(float& one, float& other, Shared& shared) {
  GPUTRAIN_UNROLL
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    one = fmaxf(one, __shfl_xor_sync(kWholeWarp, one, distance));
    other = fmaxf(other, __shfl_xor_sync(kWholeWarp, other, distance));
  }
  __syncthreads();
  if (thread_x() % kWarpSize == 0) {
    shared.largest[0][thread_x() / kWarpSize] = one;
    shared.largest[1][thread_x() / kWarpSize] = other;
  }
  __syncthreads();
  for (int warp = 0; warp < kScaled / kWarpSize; ++warp) {
    one = fmaxf(one, shared.largest[0][warp]);
    other = fmaxf(other, shared.largest[1][warp]);
  }
}

/// Returns the code whose value is nearest; of two that are equally near, the lower one.
__device__ inline int code_of(const float (&tree)[kCodes], float share) {
  int low = 0, high = kCodes - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if ((tree[middle] + tree[middle + 1]) / 2 < share) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ inline float read_average(const Average& average, const float (&tree)[kCodes], int64_t place) {
  if (average.scales == nullptr) return static_cast<const float*>(average.numbers)[place];
  return tree[static_cast<const uint8_t*>(average.numbers)[place]] * average.scales[place / kScaled];
}

struct AdamW8bitRates {
  float log_beta1, log_beta2, one_less_beta1, one_less_beta2;  // 1 - beta is computed in double
};

/// Returns the random bits of a thread's elements in four blocks of kScaled, of which `block` is one.
__device__ inline unsigned word_of(const RandomBits& bits, int64_t block) {
  const unsigned low = block % 2 == 0 ? bits.word[0] : bits.word[1];
  const unsigned high = block % 2 == 0 ? bits.word[2] : bits.word[3];
  return block % 4 < 2 ? low : high;
}

template <class T>
__global__ void __launch_bounds__(kScaled) adamw8bit_kernel(AdamW8bitUpdate p, AdamW8bitRates rates) {
  if (p.found_inf != nullptr && *p.found_inf != 0) return;
  Shared& shared = block_memory<Shared>();
  shared.tree[0][thread_x()] = p.trees[thread_x()];
  shared.tree[1][thread_x()] = p.trees[kCodes + thread_x()];
  __syncthreads();
  const UpdatedTensor& tensor = part_of_block(p.tensors, p.count, block_x());
  const float lr = *p.lr * tensor.lr_factor, divisor = p.divisor != nullptr ? *p.divisor : 1.0F;
  const float step = *p.step - tensor.since;
  const float first_correction = 1 / -expm1f(step * rates.log_beta1);
  const float second_correction = 1 / sqrtf(-expm1f(step * rates.log_beta2));
  const int64_t begin = (block_x() - tensor.first_block) * (int64_t{kTurns} * kScaled);
  T* const values = static_cast<T*>(tensor.value);
  RandomBits bits = {};
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t block = begin + int64_t{turn} * kScaled, place = block + thread_x();
    if (block >= tensor.numel) break;  // all threads together
    const bool is_there = place < tensor.numel;
    float mean = 0, square = 0;
    if constexpr (kPackOf<T> != kPackOf<float>) {
      const int64_t draw = block / (4 * kScaled) * kScaled + thread_x();
      if (turn % 4 == 0) bits = rounding_bits(tensor.key, draw, *p.step, RoundingUse::value);
    }
    if (is_there) {
      const float g = widen(static_cast<const T*>(tensor.gradient)[place]) / divisor;
      mean = read_average(tensor.first, shared.tree[0], place);
      square = read_average(tensor.second, shared.tree[1], place);
      mean += (g - mean) * rates.one_less_beta1;
      square = static_cast<float>(p.beta2) * square + rates.one_less_beta2 * g * g;
      float value = widen(values[place]);
      value -= lr * tensor.decay * value;
      value -= mean * first_correction / (sqrtf(square) * second_correction + p.eps) * lr;
      if constexpr (kPackOf<T> != kPackOf<float>) value = rounded_stochastically(value, word_of(bits, turn));
      values[place] = narrow<T>(value);
      if (tensor.working != nullptr) {
        if (p.working_element == Element::bf16) {
          static_cast<Bf16*>(tensor.working)[place] = narrow<Bf16>(value);
        } else {
          static_cast<Fp16*>(tensor.working)[place] = narrow<Fp16>(value);
        }
      }
    }
    if (tensor.first.scales == nullptr) {
      if (!is_there) continue;
      static_cast<float*>(tensor.first.numbers)[place] = mean;
      static_cast<float*>(tensor.second.numbers)[place] = square;
      continue;
    }
    float largest_mean = fabsf(mean), largest_square = square;
    block_max(largest_mean, largest_square, shared);
    if (thread_x() == 0) {
      tensor.first.scales[block / kScaled] = largest_mean;
      tensor.second.scales[block / kScaled] = largest_square;
    }
    if (!is_there) continue;
    const float share = square / (largest_square > 0 ? largest_square : 1);
    const int of_square = code_of(shared.tree[1], share);
    static_cast<uint8_t*>(tensor.first.numbers)[place] =
        static_cast<uint8_t>(code_of(shared.tree[0], mean / (largest_mean > 0 ? largest_mean : 1)));
    // A square above 0 stays above 0: as 0, it would let a first average that is left make a step of any length.
    static_cast<uint8_t*>(tensor.second.numbers)[place] =
        static_cast<uint8_t>(of_square == 0 && share > 0 ? 1 : of_square);
  }
}

}  // namespace

int64_t grid_blocks_of(int64_t numel) { return divided_up(numel, int64_t{kTurns} * kScaled); }

void adamw8bit(const AdamW8bitUpdate& p, Stream stream) {
  const AdamW8bitRates rates{.log_beta1 = static_cast<float>(std::log(p.beta1)),
                             .log_beta2 = static_cast<float>(std::log(p.beta2)),
                             .one_less_beta1 = static_cast<float>(1 - p.beta1),
                             .one_less_beta2 = static_cast<float>(1 - p.beta2)};
  const auto kernel = p.element == Element::bf16 ? adamw8bit_kernel<Bf16> : adamw8bit_kernel<float>;
  launch(kernel, dim3{extent(p.blocks), 1, 1}, dim3{kScaled, 1, 1}, stream, p, rates);
}

}  // namespace gputrain::ops::cuda
