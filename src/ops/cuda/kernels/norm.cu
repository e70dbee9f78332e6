// Residual + dropout + LayerNorm (Ba et al., arXiv:1607.06450) or RMSNorm (Zhang and Sennrich, arXiv:1910.07467). Each
// tensor is read and written once; one or more whole warps hold a row in registers. The statistics are those of z as
// stored, so that the backward pass uses the same numbers.
// Registers: norm_forward_kernel 96, norm_backward_kernel 168
#include "norm.hpp"

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kForwardThreads = 256, kMostThreads = 384;  // of a block
constexpr int kForwardPacks = 3;

/// Returns the first column of the thread's pack, which covers [column_of(pack), column_of(pack) + kVector) of a row.
template <int kVector>
__device__ int column_of(int pack) {
  return (pack * threads_x() + thread_x()) * kVector;
}

template <class T, int kVector, int kPacks>
__global__ void __launch_bounds__(512, 1) norm_forward_kernel(NormForward p) {
  RowScratch& for_mean = block_memory<RowScratch, 0>();
  RowScratch& for_variance = block_memory<RowScratch, 1>();
  const int width = static_cast<int>(p.width);
  const int64_t row = static_cast<int64_t>(block_x()) * threads_y() + thread_y();
  const bool is_row = row < p.rows;
  const int64_t begin = row * width;
  // All loads before the first store, because the compiler cannot move loads over a store.
  Pack<T, kVector> x_pack[kPacks], residual_pack[kPacks];
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int column = column_of<kVector>(pack);
    if (!is_row || column >= width) continue;
    x_pack[pack] = load_pack<T, kVector>(static_cast<const T*>(p.x) + begin + column);
    if (p.residual == nullptr) continue;
    residual_pack[pack] = load_pack<T, kVector>(static_cast<const T*>(p.residual) + begin + column);
  }
  float z[kPacks][kVector] = {};
  float sum = 0, unused = 0;
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int column = column_of<kVector>(pack);
    if (!is_row || column >= width) continue;
    unpack(x_pack[pack], z[pack]);
    if (p.dropout.threshold > 0) Mask(p.dropout).apply(begin + column, z[pack]);
    if (p.residual != nullptr) {
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) z[pack][k] += widen(residual_pack[pack].at[k]);
    }
    if (p.z != nullptr) {
      store(static_cast<T*>(p.z) + begin + column, z[pack]);
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) z[pack][k] = widen(narrow<T>(z[pack][k]));
    }
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) sum += z[pack][k];
  }
  const float inverse_width = 1.0F / static_cast<float>(width);
  float mean = 0;
  if (p.centred) {
    row_sums(sum, unused, for_mean);
    mean = sum * inverse_width;
  }
  float squares = 0;
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    if (!is_row || column_of<kVector>(pack) >= width) continue;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) squares += (z[pack][k] - mean) * (z[pack][k] - mean);
  }
  row_sums(squares, unused, for_variance);
  const float rstd = rsqrtf(squares * inverse_width + p.eps);
  if (!is_row) return;
  if (thread_x() == 0) {
    if (p.centred) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int column = column_of<kVector>(pack);
    if (column >= width) continue;
    float scale[kVector], shift[kVector] = {};
    load_floats(p.scale + column, scale);
    if (p.shift != nullptr) load_floats(p.shift + column, shift);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) z[pack][k] = (z[pack][k] - mean) * rstd * scale[k] + shift[k];
    store(static_cast<T*>(p.y) + begin + column, z[pack]);
  }
}

/// A thread's sums over its rows, for its columns.
template <int kVector, int kPacks>
struct Totals {
  float scale[kPacks][kVector] = {}, shift[kPacks][kVector] = {};
};

/// Sums the rows of a block in order and writes [width] to `to`.
template <int kVector, int kPacks>
__device__ void write_totals(const float (&totals)[kPacks][kVector], int width, float* to) {
  struct Values {
    float of[kMostThreads][kVector];
  };
  Values& values = block_memory<Values>();
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int column = column_of<kVector>(pack);
    __syncthreads();
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) values.of[thread_y() * threads_x() + thread_x()][k] = totals[pack][k];
    __syncthreads();
    if (thread_y() != 0 || column >= width) continue;
    float sum[kVector];
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) sum[k] = totals[pack][k];
    for (int y = 1; y < threads_y(); ++y) {
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) sum[k] += values.of[y * threads_x() + thread_x()][k];
    }
    store_floats(to + column, sum);
  }
}

// With g = dy scale and h the normalised row: dz = passed + rstd (g - mean(g) - h mean(g h)); no mean(g) without
// centring.
template <class T, int kVector, int kPacks>
__global__ void __launch_bounds__(kMostThreads, kVector* kPacks <= 8 ? 2 : 1) norm_backward_kernel(NormBackward p) {
  struct Scratch {
    RowScratch of[2];  // by parity, so that a barrier lies between two uses of one
  };
  Scratch& scratch = block_memory<Scratch>();
  const int width = static_cast<int>(p.width);
  const float inverse_width = 1.0F / static_cast<float>(width);
  Totals<kVector, kPacks> totals;
  int parity = 0;
  for (int64_t first = static_cast<int64_t>(block_x()) * threads_y(); first < p.rows;
       first += static_cast<int64_t>(blocks_x()) * threads_y()) {
    const int64_t row = first + thread_y();
    const bool is_row = row < p.rows;
    const int64_t begin = row * width;
    const float mean = is_row && p.centred ? p.mean[row] : 0.0F, rstd = is_row ? p.rstd[row] : 0.0F;
    Pack<T, kVector> dy_pack[kPacks], z_pack[kPacks], passed_pack[kPacks];
    float sum_g = 0, sum_gh = 0;
    GPUTRAIN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int column = column_of<kVector>(pack);
      if (!is_row || column >= width) continue;
      dy_pack[pack] = load_pack<T, kVector>(static_cast<const T*>(p.dy) + begin + column);
      z_pack[pack] = load_pack<T, kVector>(static_cast<const T*>(p.z) + begin + column);
      if (p.passed != nullptr) {
        passed_pack[pack] = load_pack<T, kVector>(static_cast<const T*>(p.passed) + begin + column);
      }
      float scale[kVector];
      load_floats(p.scale + column, scale);
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) {
        const float dy = widen(dy_pack[pack].at[k]), g = dy * scale[k];
        const float h = (widen(z_pack[pack].at[k]) - mean) * rstd;
        totals.scale[pack][k] += dy * h;
        totals.shift[pack][k] += dy;
        sum_g += g;
        sum_gh += g * h;
      }
    }
    row_sums(sum_g, sum_gh, scratch.of[parity]);
    parity ^= 1;
    if (!is_row) continue;
    const float mean_g = p.centred ? sum_g * inverse_width : 0.0F, mean_gh = sum_gh * inverse_width;
    GPUTRAIN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int column = column_of<kVector>(pack);
      if (column >= width) continue;
      float dz[kVector], scale[kVector];
      load_floats(p.scale + column, scale);
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) {
        const float h = (widen(z_pack[pack].at[k]) - mean) * rstd;
        dz[k] = rstd * (widen(dy_pack[pack].at[k]) * scale[k] - mean_g - h * mean_gh);
        if (p.passed != nullptr) dz[k] += widen(passed_pack[pack].at[k]);
      }
      store(static_cast<T*>(p.dz) + begin + column, dz);
      if (p.dx != nullptr) {
        Mask(p.dropout).apply(begin + column, dz);
        store(static_cast<T*>(p.dx) + begin + column, dz);
      }
    }
  }
  float* const partials = p.partials + static_cast<int64_t>(block_x()) * 2 * width;
  write_totals(totals.scale, width, partials);
  write_totals(totals.shift, width, partials + width);
}

/// Warps per row with `packs` packs per thread.
int64_t warps_of(int64_t width, int vector, int packs) {
  return divided_up(width, int64_t{kWarpSize} * vector * packs);
}

dim3 block_of(int64_t warps, int threads) {
  const int64_t along_x = warps * kWarpSize;
  return dim3{extent(along_x), extent(along_x < threads ? threads / along_x : 1), 1};
}

template <class T, int kVector, int kPacks>
void launch_forward(const NormForward& p, Stream stream) {
  const dim3 block = block_of(warps_of(p.width, kVector, kPacks), kForwardThreads);
  launch(norm_forward_kernel<T, kVector, kPacks>, dim3{extent(divided_up(p.rows, block.y)), 1, 1}, block, stream, p);
}

template <class T, int kVector, int kPacks>
void launch_backward(const NormBackward& p, Stream stream) {
  const dim3 block = block_of(warps_of(p.width, kVector, kPacks), kMostThreads);
  launch(norm_backward_kernel<T, kVector, kPacks>, dim3{extent(p.parts), 1, 1}, block, stream, p);
}

template <class T>
void forward_of(const NormForward& p, Stream stream) {
  constexpr int kVector = kPackOf<T>;
  if (!is_packed(p.width, kVector, p.x, p.residual, p.z, p.y, p.scale, p.shift)) {
    return launch_forward<T, 1, 16>(p, stream);
  }
  // The fewest packs for this width in as many warps as three packs per thread need.
  switch (divided_up(p.width, warps_of(p.width, kVector, kForwardPacks) * kWarpSize * kVector)) {
    case 1:
      return launch_forward<T, kVector, 1>(p, stream);
    case 2:
      return launch_forward<T, kVector, 2>(p, stream);
    default:
      return launch_forward<T, kVector, kForwardPacks>(p, stream);
  }
}

template <class T>
void backward_of(const NormBackward& p, Stream stream) {
  constexpr int kVector = kPackOf<T>;
  if (!is_packed(p.width, kVector, p.dy, p.passed, p.z, p.dz, p.dx, p.scale, p.partials)) {
    return launch_backward<T, 1, 16>(p, stream);
  }
  const auto fits = [&](int packs) { return warps_of(p.width, kVector, packs) * kWarpSize <= kMostThreads; };
  if (fits(1)) return launch_backward<T, kVector, 1>(p, stream);
  if (fits(2)) return launch_backward<T, kVector, 2>(p, stream);
  if constexpr (kVector == 4) launch_backward<T, kVector, 4>(p, stream);
}

}  // namespace

bool takes_norm_width(int64_t width) { return width > 0 && width <= 6144; }

void norm_forward(const NormForward& p, Stream stream) {
  with_type(p.element, [&](auto type) { forward_of<decltype(type)>(p, stream); });
}

void norm_backward(const NormBackward& p, Stream stream) {
  with_type(p.element, [&](auto type) { backward_of<decltype(type)>(p, stream); });
}

}  // namespace gputrain::ops::cuda
