// Two kernels bound by memory, to learn what our own kernels can reach: a copy in 16-byte pieces, and residual addition
// joined to LayerNorm with one warp per row (two tensors read, two written).
#include "kernels.hpp"

#include <cuda_bf16.h>

namespace probe {
namespace {

constexpr int kVector = 8;  // bf16 values in 16 bytes

struct alignas(16) Vector {
  __nv_bfloat16 at[kVector];
};

__global__ void copy_kernel(const Vector* from, Vector* to, long count) {
  const long stride = static_cast<long>(gridDim.x) * blockDim.x;
  for (long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

/// x, residual, sum, out: [rows, kPieces * 256]; scale, shift: [kPieces * 256].
template <int kPieces>
__global__ void add_norm_kernel(const Vector* x, const Vector* residual, const Vector* scale, const Vector* shift,
                                Vector* sum, Vector* out, int rows) {
  const int lane = threadIdx.x % 32;
  const int row = static_cast<int>((static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32);
  if (row >= rows) return;
  constexpr int kWidth = kPieces * 32 * kVector;
  const long begin = static_cast<long>(row) * kPieces * 32;
  float z[kPieces][kVector];
  float total = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    const long i = begin + piece * 32 + lane;
    const Vector a = x[i], b = residual[i];
    Vector c;
    for (int k = 0; k < kVector; ++k) {
      c.at[k] = __float2bfloat16(__bfloat162float(a.at[k]) + __bfloat162float(b.at[k]));
      z[piece][k] = __bfloat162float(c.at[k]);
      total += z[piece][k];
    }
    sum[i] = c;
  }
  const float mean = warp_sum(total) / kWidth;
  float squares = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    for (int k = 0; k < kVector; ++k) squares += (z[piece][k] - mean) * (z[piece][k] - mean);
  }
  const float inverse = rsqrtf(warp_sum(squares) / kWidth + 1e-5f);
  for (int piece = 0; piece < kPieces; ++piece) {
    const Vector g = scale[piece * 32 + lane], b = shift[piece * 32 + lane];
    Vector y;
    for (int k = 0; k < kVector; ++k) {
      y.at[k] =
          __float2bfloat16((z[piece][k] - mean) * inverse * __bfloat162float(g.at[k]) + __bfloat162float(b.at[k]));
    }
    out[begin + piece * 32 + lane] = y;
  }
}

}  // namespace

void launch_copy(const void* from, void* to, long bytes, int blocks, cudaStream_t stream) {
  copy_kernel<<<blocks, 512, 0, stream>>>(static_cast<const Vector*>(from), static_cast<Vector*>(to), bytes / 16);
}

void launch_add_norm_768(const AddNorm& p, cudaStream_t stream) {
  const int warps_per_block = 8;
  add_norm_kernel<3><<<(p.rows + warps_per_block - 1) / warps_per_block, warps_per_block * 32, 0, stream>>>(
      static_cast<const Vector*>(p.x), static_cast<const Vector*>(p.residual), static_cast<const Vector*>(p.scale),
      static_cast<const Vector*>(p.shift), static_cast<Vector*>(p.sum), static_cast<Vector*>(p.out), p.rows);
}

}  // namespace probe
