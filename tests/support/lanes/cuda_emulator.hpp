// Runs CUDA kernels on the CPU: for a C++ compiler, src/ops/cuda/kernels/device.cuh includes this instead of the CUDA
// toolkit.
//
// Each thread of a block is a fiber; blocks run one after another. The caller or this code poisons shared memory and
// everything a kernel has not written. Vector loads assert their alignment; a thread that exits before a barrier or
// shuffle at which others wait is an error. ThreadSanitizer sees every thread of every block as a thread, ordered only
// by __syncthreads and __syncwarp, so it finds a missing barrier and two blocks that write to the same address. Not
// checked: coalescing, occupancy, the rounding of fast intrinsics.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

struct CUstream_st;

#define __global__
#define __device__
#define __launch_bounds__(...)
#define GPUTRAIN_UNROLL
#define GPUTRAIN_UNROLL_4

namespace cuda_emulator {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

/// Runs `thread` once per thread of every block. Throws std::runtime_error if a thread calls fail(), or on a deadlock.
void run(const Dim& blocks, const Dim& threads, const std::function<void()>& thread);

[[noreturn]] void fail(const std::string& what);

const Dim& thread_index();
const Dim& block_index();
const Dim& block_size();
const Dim& grid_size();

void block_barrier();
void warp_barrier();
/// Warp shuffle: each thread passes a value and gets that of the thread whose lane differs in `bits`.
uint64_t exchange(uint64_t value, unsigned bits);
/// The block's shared memory with this name.
void* shared_bytes(const void* name, size_t bytes);

}  // namespace cuda_emulator

#define threadIdx cuda_emulator::thread_index()
#define blockIdx cuda_emulator::block_index()
#define blockDim cuda_emulator::block_size()
#define gridDim cuda_emulator::grid_size()

inline void __syncthreads() { cuda_emulator::block_barrier(); }
inline void __syncwarp() { cuda_emulator::warp_barrier(); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  if (mask != 0xffffffffU) cuda_emulator::fail("a shuffle among less than a warp");
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = cuda_emulator::exchange(bits, static_cast<unsigned>(distance));
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
// Rounded by themselves: a compiler might fuse a product and a sum.
inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }

namespace gputrain::ops::cuda {

using Bf16 = c10::BFloat16;
using Fp16 = c10::Half;
using dim3 = cuda_emulator::Dim;

inline float widen(float value) { return value; }
inline float widen(Bf16 value) { return value; }
inline float widen(Fp16 value) { return value; }

inline unsigned bits_of(float value) { return std::bit_cast<unsigned>(value); }
inline float float_of(unsigned bits) { return std::bit_cast<float>(bits); }

/// Converts two neighbours at a time, like a GPU.
template <class T>
void narrow2(float a, float b, T* to) {
  to[0] = static_cast<T>(a);
  to[1] = static_cast<T>(b);
}
template <class T>
T narrow(float value) {
  return static_cast<T>(value);
}

template <class Pack>
void check_aligned(const void* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(Pack) != 0)
    cuda_emulator::fail("a vector access that is not aligned");
}

template <class T, int kIndex = 0>
T& block_memory() {
  static const char name = 0;
  return *static_cast<T*>(cuda_emulator::shared_bytes(&name, sizeof(T)));
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, CUstream_st*, Arguments... arguments) {
  cuda_emulator::run(blocks, threads, [&] { kernel(arguments...); });
}

}  // namespace gputrain::ops::cuda
