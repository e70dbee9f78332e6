#include <algorithm>

#include "../../code_book.hpp"
#include "../../dispatch/gpu.hpp"
#include "../autograd/launching.hpp"
#include "gputrain/ops/quantized.hpp"
#include "quantized.hpp"

namespace gputrain::ops::gpu {
namespace {

/// Returns the type that values are rounded to before they are written: fp32, where that changes nothing.
cuda::Element rounding(at::ScalarType stored, const at::Tensor& into) {
  if (stored == into.scalar_type()) return cuda::Element::fp32;
  return stored == at::kBFloat16 ? cuda::Element::bf16
         : stored == at::kHalf   ? cuda::Element::fp16
                                 : cuda::Element::fp32;
}

}  // namespace

void quantize(const at::Tensor& matrix, const Quantized4& into) {
  cuda::quantize_blocks({.values = cuda::read(matrix),
                         .element = cuda::element_of(matrix),
                         .count = matrix.numel(),
                         .block = static_cast<int>(into.block),
                         .steps = steps_of(into.book),
                         .codes = cuda::write<uint8_t>(into.codes),
                         .scales = cuda::write<float>(into.scales)},
                        cuda::current_stream());
  cuda::check_launches();
}

void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into) {
  const bool is_plain = !from.has_quantized_scales();
  cuda::DequantizeBlocks call{.codes = cuda::read<uint8_t>(from.codes),
                              .count = into.numel(),
                              .block = static_cast<int>(from.block),
                              .scales = is_plain ? cuda::read<float>(from.scales) : nullptr,
                              .scale_codes = is_plain ? nullptr : cuda::read<uint8_t>(from.scales),
                              .outer_scales = cuda::read<float>(from.scale_scales),
                              .offset = cuda::read<float>(from.scale_offset),
                              .stored = rounding(stored, into),
                              .into = cuda::write(into),
                              .element = cuda::element_of(into)};
  std::ranges::copy(values_of(from.book), call.book);
  std::ranges::copy(scale_values(), call.tree);
  cuda::dequantize_blocks(call, cuda::current_stream());
  cuda::check_launches();
}

void quantize(const at::Tensor& matrix, const QuantizedRows& into) {
  cuda::quantize_rows({.values = cuda::read(matrix),
                       .element = cuda::element_of(matrix),
                       .rows = into.codes.size(0),
                       .columns = into.codes.size(1),
                       .codes = cuda::write<int8_t>(into.codes),
                       .scales = cuda::write<float>(into.scales)},
                      cuda::current_stream());
  cuda::check_launches();
}

void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into) {
  cuda::dequantize_rows({.codes = cuda::read<int8_t>(from.codes),
                         .scales = cuda::read<float>(from.scales),
                         .rows = from.codes.size(0),
                         .columns = from.codes.size(1),
                         .stored = rounding(stored, into),
                         .into = cuda::write(into),
                         .element = cuda::element_of(into)},
                        cuda::current_stream());
  cuda::check_launches();
}

}  // namespace gputrain::ops::gpu
