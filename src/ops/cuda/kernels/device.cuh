// Shared by our kernels: packs of 16 bytes, sums over warps and rows, random bits. Storage is fp32, bf16 or fp16;
// arithmetic is fp32. In tests, the same source runs on a CPU, thread by thread.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#include "native.cuh"
#else
#include "support/lanes/cuda_emulator.hpp"
#endif

#include "kernels.hpp"

namespace gputrain::ops::cuda {

constexpr unsigned kWholeWarp = 0xffffffffU;
constexpr int kWarpSize = 32;

template <class T>
constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));  // elements per 16-byte access

__device__ inline int thread_x() { return static_cast<int>(threadIdx.x); }
__device__ inline int thread_y() { return static_cast<int>(threadIdx.y); }
__device__ inline int block_x() { return static_cast<int>(blockIdx.x); }
__device__ inline int block_y() { return static_cast<int>(blockIdx.y); }
__device__ inline int threads_x() { return static_cast<int>(blockDim.x); }
__device__ inline int threads_y() { return static_cast<int>(blockDim.y); }
__device__ inline int blocks_x() { return static_cast<int>(gridDim.x); }
__device__ inline int blocks_y() { return static_cast<int>(gridDim.y); }

inline unsigned extent(int64_t count) { return static_cast<unsigned>(count); }
inline int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

/// Finds the part that a block of the grid belongs to. Parts have ascending blocks, each from its `first_block` on.
template <class Part>
__device__ const Part& part_of_block(const Part* parts, int count, int64_t block) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (parts[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return parts[low];
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <class T, int kCount>
__device__ Pack<T, kCount> load_pack(const T* from) {
  check_aligned<Pack<T, kCount>>(from);
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}

template <class T, int kCount>
__device__ void unpack(const Pack<T, kCount>& pack, float (&to)[kCount]) {
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; ++k) to[k] = widen(pack.at[k]);
}

template <int kCount, class T>
__device__ void load(const T* from, float (&to)[kCount]) {
  unpack(load_pack<T, kCount>(from), to);
}

template <class T, int kCount>
__device__ void store(T* to, const float (&from)[kCount]) {
  Pack<T, kCount> pack;
  if constexpr (kCount == 1) {
    pack.at[0] = narrow<T>(from[0]);
  } else {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; k += 2) narrow2(from[k], from[k + 1], &pack.at[k]);
  }
  check_aligned<Pack<T, kCount>>(to);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// Loads the fp32 values that belong to a pack; they may need more than one access.
template <int kCount>
__device__ void load_floats(const float* from, float (&to)[kCount]) {
  constexpr int kStep = kCount < 4 ? kCount : 4;
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; k += kStep) {
    const auto pack = load_pack<float, kStep>(from + k);
    GPUTRAIN_UNROLL
    for (int i = 0; i < kStep; ++i) to[k + i] = pack.at[i];
  }
}

template <int kCount>
__device__ void store_floats(float* to, const float (&from)[kCount]) {
  constexpr int kStep = kCount < 4 ? kCount : 4;
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; k += kStep) {
    Pack<float, kStep> pack;
    GPUTRAIN_UNROLL
    for (int i = 0; i < kStep; ++i) pack.at[i] = from[k + i];
    check_aligned<Pack<float, kStep>>(to + k);
    *reinterpret_cast<Pack<float, kStep>*>(to + k) = pack;
  }
}

template <class Value>
__device__ Value warp_sum(Value value) {
  GPUTRAIN_UNROLL
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

/// Two sums over the threads of a row, which are the whole warps along x; all rows of the block at once. One barrier if
/// a row has several warps: use `scratch` again only after another barrier.
struct RowScratch {
  float first[kWarpSize], second[kWarpSize];  // per warp of the block
};
__device__ inline void row_sums(float& first, float& second, RowScratch& scratch) {
  first = warp_sum(first);
  second = warp_sum(second);
  const int warps = threads_x() / kWarpSize;
  if (warps == 1) return;
  const int begin = thread_y() * warps;
  if (thread_x() % kWarpSize == 0) {
    scratch.first[begin + thread_x() / kWarpSize] = first;
    scratch.second[begin + thread_x() / kWarpSize] = second;
  }
  __syncthreads();
  first = second = 0;
  for (int warp = 0; warp < warps; ++warp) {
    first += scratch.first[begin + warp];
    second += scratch.second[begin + warp];
  }
}

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
struct RandomBits {
  unsigned word[4];
};
__device__ inline RandomBits philox(uint64_t key, uint64_t low, uint64_t high) {
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  RandomBits c{{static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high),
                static_cast<unsigned>(high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const unsigned product0 = 0xD2511F53U * c.word[0], product1 = 0xCD9E8D57U * c.word[2];
    const unsigned high0 = __umulhi(0xD2511F53U, c.word[0]), high1 = __umulhi(0xCD9E8D57U, c.word[2]);
    c = {{high1 ^ c.word[1] ^ k0, product1, high0 ^ c.word[3] ^ k1, product0}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// The uses of the draws of stochastic rounding; see gputrain/ops/stochastic_rounding.hpp.
enum class RoundingUse { value, averages };

__device__ inline RandomBits rounding_bits(uint64_t key, int64_t draw, float step, RoundingUse use) {
  return philox(key, static_cast<uint64_t>(draw), static_cast<uint64_t>(step) | static_cast<uint64_t>(use) << 32);
}

/// Rounds to a value of bf16, up or down from `value` by the low 16 of `bits`: the mean over all bits is `value`.
__device__ inline float rounded_stochastically(float value, unsigned bits) {
  return value == value ? float_of((bits_of(value) + (bits & 0xffffU)) & 0xffff0000U) : value;
}

/// Dropout mask of kCount neighbours: 16 bits for each, so that one draw serves eight elements. It depends only on
/// seed, offset and the element's index, so that the backward pass computes the same mask.
struct Mask {
  uint64_t seed, offset;
  unsigned threshold;  // elements whose 16 bits are below this are dropped
  float scale;         // factor for kept elements

  __device__ explicit Mask(const Dropout& dropout)
      : seed(dropout.seed_pointer != nullptr ? static_cast<uint64_t>(*dropout.seed_pointer) : dropout.seed),
        offset((dropout.offset_pointer != nullptr ? static_cast<uint64_t>(*dropout.offset_pointer) : 0) +
               dropout.offset),
        threshold(dropout.threshold),
        scale(65536.0F / static_cast<float>(65536U - dropout.threshold)) {}

  template <int kCount>
  __device__ void apply(int64_t place, float (&values)[kCount]) const {
    const RandomBits bits = philox(seed, static_cast<uint64_t>(place) / 8, offset);
    const int begin = kCount == 8 ? 0 : static_cast<int>(place % 8);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const int slot = begin + k;
      const unsigned half = word_of(bits, slot / 2) >> (slot % 2 * 16) & 0xffffU;
      values[k] = half < threshold ? 0.0F : values[k] * scale;
    }
  }

 private:
  // Branches, because an index known only at run time would put the words into local memory.
  __device__ static unsigned word_of(const RandomBits& bits, int index) {
    const unsigned low = index % 2 == 0 ? bits.word[0] : bits.word[1];
    const unsigned high = index % 2 == 0 ? bits.word[2] : bits.word[3];
    return index < 2 ? low : high;
  }
};

/// Calls visit(a value of the storage type).
template <class Visit>
void with_type(Element element, const Visit& visit) {
  switch (element) {
    case Element::fp32:
      return visit(float{});
    case Element::bf16:
      return visit(Bf16{});
    case Element::fp16:
      return visit(Fp16{});
  }
}

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

/// Returns whether every row is a whole number of packs and every tensor is aligned to 16 bytes.
template <class... Pointers>
bool is_packed(int64_t width, int pack, Pointers... pointers) {
  return width % pack == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace gputrain::ops::cuda
