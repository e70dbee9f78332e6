// Quantised matrices (QLoRA: Dettmers et al., arXiv:2305.14314; LLM.int8(): arXiv:2208.07339). Reading them is bound by
// memory: neighbours write neighbouring packs of 16 bytes, and each thread has several loads of codes under way.
// Registers: quantize_blocks_kernel 48, dequantize_blocks_kernel 48, quantize_rows_kernel 40, dequantize_rows_kernel 40
#include "quantized.hpp"

#include "../kernels/device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kThreads = 256, kTurns = 4;  // packs that a thread reads

/// Loads values, those after the last `left` as 0.
template <class T, int kCount>
__device__ void load_some(const T* from, int64_t left, bool is_packed, float (&to)[kCount]) {
  if (is_packed && left >= kCount) return load(from, to);
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; ++k) to[k] = k < left ? widen(from[k]) : 0.0F;
}

template <class T, int kCount>
__device__ void store_some(T* to, int64_t left, bool is_packed, const float (&from)[kCount]) {
  if (is_packed && left >= kCount) return store(to, from);
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; ++k) {
    if (k < left) to[k] = narrow<T>(from[k]);
  }
}

template <class Code, int kCount>
__device__ void store_codes(Code* to, int64_t left, bool is_packed, const Pack<Code, kCount>& codes) {
  if (is_packed && left >= kCount) {
    check_aligned<Pack<Code, kCount>>(to);
    *reinterpret_cast<Pack<Code, kCount>*>(to) = codes;
    return;
  }
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; ++k) {
    if (k < left) to[k] = codes.at[k];
  }
}

/// Rounds to a type that matrices are stored in.
template <int kCount>
__device__ void round_to(Element stored, float (&values)[kCount]) {
  if (stored == Element::bf16) {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = widen(narrow<Bf16>(values[k]));
  } else if (stored == Element::fp16) {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = widen(narrow<Fp16>(values[k]));
  }
}

/// Returns the larger of `most` and the magnitudes, all as bits, which are ordered as magnitudes are.
template <int kCount>
__device__ unsigned largest(const float (&values)[kCount], unsigned most) {
  GPUTRAIN_UNROLL
  for (int k = 0; k < kCount; ++k) {
    const unsigned bits = bits_of(values[k]) & 0x7FFFFFFFU;
    most = bits > most ? bits : most;
  }
  return most;
}

/// Returns the largest of `lanes` neighbouring threads, a power of two.
__device__ inline unsigned largest_of_lanes(unsigned most, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const unsigned other = __shfl_xor_sync(kWholeWarp, most, distance);
    most = other > most ? other : most;
  }
  return most;
}

__device__ inline int code_of(float share, const CodeSteps& steps) {
  int code = steps.first;
  GPUTRAIN_UNROLL
  for (int k = 0; k < 15; ++k) code ^= share > steps.bounds[k] ? steps.changes[k] : 0;
  return code;
}

/// `lanes` threads of a warp quantise a block.
template <class T>
__global__ void __launch_bounds__(kThreads) quantize_blocks_kernel(const QuantizeBlocks p, int lanes, bool is_packed) {
  constexpr int kCount = kPackOf<T>;
  constexpr float kLeast = 1e-38F;
  const int64_t index = (int64_t{block_x()} * kThreads + thread_x()) / lanes, begin = index * p.block;
  const int64_t end = begin + p.block < p.count ? begin + p.block : p.count;
  const int64_t first = begin + thread_x() % lanes * kCount;
  const T* const values = static_cast<const T*>(p.values);
  float some[kCount];
  unsigned most_bits = 0;
  for (int64_t place = first; place < end; place += lanes * kCount) {
    load_some(values + place, end - place, is_packed, some);
    most_bits = largest(some, most_bits);
  }
  const float most = float_of(largest_of_lanes(most_bits, lanes));
  const float divisor = most < kLeast ? kLeast : most, factor = 1 / divisor;
  const bool is_full = end - begin == p.block;
  if (first == begin && begin < end) p.scales[index] = is_full ? most : divisor;
  for (int64_t place = first; place < end; place += lanes * kCount) {
    load_some(values + place, end - place, is_packed, some);
    Pack<uint8_t, kCount / 2> codes;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; k += 2) {
      const float one = is_full ? some[k] * factor : some[k] / divisor;
      const float other = is_full ? some[k + 1] * factor : some[k + 1] / divisor;
      codes.at[k / 2] = static_cast<uint8_t>(code_of(one, p.steps) << 4 | code_of(other, p.steps));
    }
    store_codes(p.codes + place / 2, (end - place + 1) / 2, is_packed, codes);
  }
}

/// Returns the scale of a block. The product is rounded before the sum.
__device__ inline float scale_of(const DequantizeBlocks& p, int64_t index) {
  if (p.scales != nullptr) return p.scales[index];
  return __fadd_rn(__fmul_rn(p.tree[p.scale_codes[index]], p.outer_scales[index / kScalesPerOuter]), *p.offset);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_blocks_kernel(const DequantizeBlocks p, int block_bits, bool is_packed) {
  constexpr int kCount = kPackOf<T>, kCodes = 16;
  struct Shared {
    float book[kCodes];
  };
  Shared& shared = block_memory<Shared>();
  if (thread_x() < kCodes) shared.book[thread_x()] = p.book[thread_x()];
  __syncthreads();
  constexpr int kStep = kThreads * kCount;
  const int64_t begin = int64_t{block_x()} * kTurns * kStep + thread_x() * kCount;
  Pack<uint8_t, kCount / 2> pairs[kTurns];
  GPUTRAIN_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t place = begin + turn * kStep, left = p.count - place;
    if (is_packed && left >= kCount) {
      pairs[turn] = load_pack<uint8_t, kCount / 2>(p.codes + place / 2);
      continue;
    }
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; k += 2) pairs[turn].at[k / 2] = k < left ? p.codes[(place + k) / 2] : uint8_t{0};
  }
  GPUTRAIN_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t place = begin + turn * kStep;
    if (place >= p.count) break;
    const float scale = scale_of(p, place >> block_bits);
    float values[kCount];
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; k += 2) {
      const int pair = pairs[turn].at[k / 2];
      values[k] = shared.book[pair >> 4] * scale;
      values[k + 1] = shared.book[pair & 0xF] * scale;
    }
    round_to(p.stored, values);
    store_some(static_cast<T*>(p.into) + place, p.count - place, is_packed, values);
  }
}

/// Finds the largest of all threads' values.
__device__ inline unsigned largest_of_block(unsigned most) {
  struct Shared {
    unsigned of_warp[kThreads / kWarpSize];
  };
  Shared& shared = block_memory<Shared>();
  most = largest_of_lanes(most, kWarpSize);
  if (thread_x() % kWarpSize == 0) shared.of_warp[thread_x() / kWarpSize] = most;
  __syncthreads();
  for (const unsigned other : shared.of_warp) most = other > most ? other : most;
  return most;
}

/// A block quantises a row.
template <class T>
__global__ void __launch_bounds__(kThreads) quantize_rows_kernel(const QuantizeRows p, bool is_packed) {
  constexpr int kCount = kPackOf<T>;
  const int64_t row = block_x();
  const T* const values = static_cast<const T*>(p.values) + row * p.columns;
  float some[kCount];
  unsigned most_bits = 0;
  for (int64_t column = thread_x() * kCount; column < p.columns; column += kThreads * kCount) {
    load_some(values + column, p.columns - column, is_packed, some);
    round_to(Element::fp16, some);
    most_bits = largest(some, most_bits);
  }
  const float most = float_of(largest_of_block(most_bits)), inverse = 1 / most, factor = inverse * 127;
  if (thread_x() == 0) p.scales[row] = most;
  for (int64_t column = thread_x() * kCount; column < p.columns; column += kThreads * kCount) {
    load_some(values + column, p.columns - column, is_packed, some);
    round_to(Element::fp16, some);
    Pack<int8_t, kCount> codes;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const float share = some[k] * factor;  // NaN in a row of zeros
      codes.at[k] = static_cast<int8_t>(share == share ? static_cast<int>(rintf(share)) : 0);
    }
    store_codes(p.codes + row * p.columns + column, p.columns - column, is_packed, codes);
  }
}

/// A block reads a row.
template <class T>
__global__ void __launch_bounds__(kThreads) dequantize_rows_kernel(const DequantizeRows p, bool is_packed) {
  constexpr int kCount = kPackOf<T>;
  constexpr auto kShare = static_cast<float>(7.874015718698502e-3);  // about 1 / 127
  const int64_t row = block_x();
  const int8_t* const codes = p.codes + row * p.columns;
  const float scale = p.scales[row];
  for (int64_t column = thread_x() * kCount; column < p.columns; column += kThreads * kCount) {
    const int64_t left = p.columns - column;
    Pack<int8_t, kCount> some;
    if (is_packed && left >= kCount) {
      some = load_pack<int8_t, kCount>(codes + column);
    } else {
      GPUTRAIN_UNROLL
      for (int k = 0; k < kCount; ++k) some.at[k] = k < left ? codes[column + k] : int8_t{0};
    }
    float values[kCount];
    GPUTRAIN_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = static_cast<float>(some.at[k]) * scale * kShare;
    round_to(p.stored, values);
    store_some(static_cast<T*>(p.into) + row * p.columns + column, left, is_packed, values);
  }
}

}  // namespace

void quantize_blocks(const QuantizeBlocks& p, Stream stream) {
  with_type(p.element, [&](auto like) {
    using T = decltype(like);
    const int packs = p.block / kPackOf<T>, lanes = packs < kWarpSize ? packs : kWarpSize;
    const int64_t threads = divided_up(p.count, int64_t{p.block}) * lanes;
    launch(quantize_blocks_kernel<T>, dim3{extent(divided_up(threads, int64_t{kThreads})), 1, 1}, dim3{kThreads, 1, 1},
           stream, p, lanes, is_packed(0, 1, p.values, p.codes));
  });
}

void dequantize_blocks(const DequantizeBlocks& p, Stream stream) {
  int bits = 0;
  while (1 << bits < p.block) ++bits;
  with_type(p.element, [&](auto like) {
    using T = decltype(like);
    const int64_t of_block = int64_t{kThreads} * kPackOf<T> * kTurns;
    launch(dequantize_blocks_kernel<T>, dim3{extent(divided_up(p.count, of_block)), 1, 1}, dim3{kThreads, 1, 1}, stream,
           p, bits, is_packed(0, 1, p.codes, p.into));
  });
}

void quantize_rows(const QuantizeRows& p, Stream stream) {
  with_type(p.element, [&](auto like) {
    using T = decltype(like);
    launch(quantize_rows_kernel<T>, dim3{extent(p.rows), 1, 1}, dim3{kThreads, 1, 1}, stream, p,
           is_packed(p.columns, kPackOf<T>, p.values, p.codes));
  });
}

void dequantize_rows(const DequantizeRows& p, Stream stream) {
  with_type(p.element, [&](auto like) {
    using T = decltype(like);
    launch(dequantize_rows_kernel<T>, dim3{extent(p.rows), 1, 1}, dim3{kThreads, 1, 1}, stream, p,
           is_packed(p.columns, kPackOf<T>, p.codes, p.into));
  });
}

}  // namespace gputrain::ops::cuda
