#include "gputrain/ops/quantized.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sub.h>

#include "code_book.hpp"
#include "cpu/quantized.hpp"
#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::ops {
namespace {

void check_block(int64_t block) {
  GPUTRAIN_ASSERT(block >= kLeastInBlock && block <= kMostInBlock && std::has_single_bit(static_cast<uint64_t>(block)),
                  "blocks have 32 to 4096 values, a power of two");
}

/// Returns the mean by ATen's sum in one thread: with several, its last bits would depend on their number.
at::Tensor mean_of(const at::Tensor& scales) {
  at::Tensor mean;
  // Within a parallel region, ATen does not share out the sum.
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t) {
    if (begin == 0) mean = scales.mean();
  });
  return mean;
}

/// Returns the code of the nearest of the values of scales; of two that are equally near, the lower one.
uint8_t code_of(float share) {
  const auto& values = scale_values();
  size_t low = 0, high = values.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if ((values[middle] + values[middle + 1]) / 2 < share) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<uint8_t>(low);
}

/// Quantises fp32 scales on the CPU, wherever they are: a GPU would sum their mean in another order. They are few.
void quantize_scales(const at::Tensor& scales, const Quantized4& into) {
  const at::Tensor here = scales.cpu(), mean = mean_of(here), rest = here.sub(mean);
  const at::Tensor codes = at::empty(into.scales.sizes(), at::kByte);
  const at::Tensor outer = at::empty(into.scale_scales.sizes(), at::kFloat);
  const auto* values = rest.const_data_ptr<float>();
  auto* written = codes.mutable_data_ptr<uint8_t>();
  auto* largest = outer.mutable_data_ptr<float>();
  at::parallel_for(0, outer.numel(), 16, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      constexpr float kLeast = 1e-38F;
      const int64_t begin = block * kScalesPerBlock, end = std::min(rest.numel(), begin + kScalesPerBlock);
      float most = 0;
      for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
      const float divisor = std::max(most, kLeast), factor = 1 / divisor;
      const bool is_full = end - begin == kScalesPerBlock;
      largest[block] = is_full ? most : divisor;
      for (int64_t i = begin; i < end; ++i) written[i] = code_of(is_full ? values[i] * factor : values[i] / divisor);
    }
  });
  into.scales.copy_(codes);
  into.scale_scales.copy_(outer);
  into.scale_offset.copy_(mean);
}

/// Returns whether this is a matrix that kernels of a GPU take only as fp32.
bool is_wide_on_gpu(const at::Tensor& matrix) { return !matrix.is_cpu() && matrix.scalar_type() == at::kDouble; }

template <class Quantized>
void quantize_anywhere(const at::Tensor& matrix, const Quantized& into) {
  const at::Tensor values = is_wide_on_gpu(matrix) ? matrix.to(at::kFloat) : matrix;
  gpu::is_here(values) ? gpu::quantize(values, into) : cpu::quantize(values, into);
}

template <class Quantized>
void dequantize_anywhere(const Quantized& from, at::ScalarType stored, const at::Tensor& into) {
  if (is_wide_on_gpu(into)) {
    const at::Tensor values = at::empty(into.sizes(), into.options().dtype(at::kFloat));
    gpu::dequantize(from, stored, values);
    into.copy_(values);
    return;
  }
  gpu::is_here(into) ? gpu::dequantize(from, stored, into) : cpu::dequantize(from, stored, into);
}

}  // namespace

void quantize(const at::Tensor& matrix, const Quantized4& into) {
  const at::NoGradGuard no_grad;
  check_block(into.block);
  if (!into.has_quantized_scales()) return quantize_anywhere(matrix, into);
  const at::Tensor scales = at::empty({ceil_divide(matrix.numel(), into.block)}, into.scale_scales.options());
  quantize_anywhere(matrix, Quantized4{into.book, into.block, into.codes, scales});
  quantize_scales(scales, into);
}

void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  check_block(from.block);
  dequantize_anywhere(from, stored, into);
}

void quantize(const at::Tensor& matrix, const QuantizedRows& into) {
  const at::NoGradGuard no_grad;
  quantize_anywhere(matrix, into);
}

void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  dequantize_anywhere(from, stored, into);
}

}  // namespace gputrain::ops
