// Parts of device.cuh that need nvcc. tests/support/cuda_emulator.hpp defines the same names for a CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define GPUTRAIN_UNROLL _Pragma("unroll")
#define GPUTRAIN_UNROLL_4 _Pragma("unroll 4")

namespace gputrain::ops::cuda {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(Bf16 value) { return __bfloat162float(value); }
__device__ inline float widen(Fp16 value) { return __half2float(value); }

__device__ inline unsigned bits_of(float value) { return __float_as_uint(value); }
__device__ inline float float_of(unsigned bits) { return __uint_as_float(bits); }

__device__ inline void narrow2(float a, float b, float* to) {
  to[0] = a;
  to[1] = b;
}
__device__ inline void narrow2(float a, float b, Bf16* to) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}
__device__ inline void narrow2(float a, float b, Fp16* to) {
  *reinterpret_cast<__half2*>(to) = __floats2half2_rn(a, b);
}
template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline Fp16 narrow<Fp16>(float value) {
  return __float2half_rn(value);
}

template <class Pack>
__device__ void check_aligned(const void*) {}

/// Returns shared memory of a block. The index distinguishes objects of the same type in a kernel.
template <class T, int kIndex = 0>
__device__ T& block_memory() {
  __shared__ T memory;
  return memory;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream, Arguments... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
}

}  // namespace gputrain::ops::cuda
