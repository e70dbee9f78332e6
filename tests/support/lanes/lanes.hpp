// Runs CUDA kernels on the CPU: what src/ops/cuda/kernels/device.cuh takes from the toolkit where a compiler for GPUs reads it,
// it takes from here where a C++ compiler does.
//
// Each thread of a block is a fiber, blocks come one after another. Shared memory and whatever a kernel has not written
// are poisoned by the caller or by us; vector loads assert their alignment; a thread that leaves before a barrier or a
// shuffle that others wait at is an error. Under ThreadSanitizer every thread of every block counts as a thread of its
// own, and only __syncthreads and __syncwarp order their memory, so that it finds a barrier that is missing and two
// blocks that write to one place. Not seen: coalescing, occupancy, the rounding of the fast intrinsics.
#pragma once

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

namespace lanes {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

/// Runs `thread` once per thread of every block. Throws std::runtime_error when one called fail(), or none can go on.
void run(const Dim& blocks, const Dim& threads, const std::function<void()>& thread);

[[noreturn]] void fail(const std::string& what);

const Dim& thread_index();
const Dim& block_index();
const Dim& block_size();
const Dim& grid_size();

void block_barrier();
void warp_barrier();
/// Each thread of a warp gives a value and takes the one of the thread whose place in the warp differs by these bits.
uint64_t exchange(uint64_t value, unsigned bits);
/// The block's shared memory of this name.
void* shared_bytes(const void* name, size_t bytes);

}  // namespace lanes

#define threadIdx lanes::thread_index()
#define blockIdx lanes::block_index()
#define blockDim lanes::block_size()
#define gridDim lanes::grid_size()

inline void __syncthreads() { lanes::block_barrier(); }
inline void __syncwarp() { lanes::warp_barrier(); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  if (mask != 0xffffffffU) lanes::fail("a shuffle among less than a warp");
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = lanes::exchange(bits, static_cast<unsigned>(distance));
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

[[noreturn]] inline void __trap() { lanes::fail("the kernel trapped"); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }

namespace gputrain::ops::cuda {

using Bf16 = c10::BFloat16;
using Fp16 = c10::Half;
using dim3 = lanes::Dim;

inline float widen(float value) { return value; }
inline float widen(Bf16 value) { return value; }
inline float widen(Fp16 value) { return value; }

/// Two neighbours at a time, as a GPU converts them.
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
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(Pack) != 0) lanes::fail("a vector access that is not aligned");
}

template <class T, int kIndex = 0>
T& block_memory() {
  static const char name = 0;
  return *static_cast<T*>(lanes::shared_bytes(&name, sizeof(T)));
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, CUstream_st*, Arguments... arguments) {
  lanes::run(blocks, threads, [&] { kernel(arguments...); });
}

}  // namespace gputrain::ops::cuda
