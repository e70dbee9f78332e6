#include "quantized.hpp"

#include <ATen/Parallel.h>

#include "../code_book.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/ops/quantized.hpp"

namespace gputrain::ops::cpu {

extern const QuantizedKernels kBaseQuantizedKernels;
#if defined(__x86_64__)
extern const QuantizedKernels kAvx2QuantizedKernels, kAvx512QuantizedKernels;
#endif

const QuantizedKernels* const* available_quantized_kernels() {
#if defined(__x86_64__)
  static const QuantizedKernels* const all[] = {&kAvx512QuantizedKernels, &kAvx2QuantizedKernels,
                                                &kBaseQuantizedKernels, nullptr};
  const auto units = device::vector_units();
  return units >= device::VectorUnits::avx512 ? all : units >= device::VectorUnits::avx2 ? all + 1 : all + 2;
#else
  static const QuantizedKernels* const all[] = {&kBaseQuantizedKernels, nullptr};
  return all;
#endif
}

const QuantizedKernels& quantized_kernels() {
  static const QuantizedKernels& best = *available_quantized_kernels()[0];
  return best;
}

namespace {

Number number_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Number::fp32;
    case at::kBFloat16:
      return Number::bf16;
    case at::kHalf:
      return Number::fp16;
    case at::kDouble:
      return Number::fp64;
    default:
      GPUTRAIN_ASSERT(false, "quantised matrices are of fp32, bf16, fp16 or fp64");
  }
}

Numbers numbers_of(const at::Tensor& tensor) { return {number_of(tensor.scalar_type()), tensor.const_data_ptr()}; }
WrittenNumbers written_numbers_of(const at::Tensor& tensor) {
  return {number_of(tensor.scalar_type()), tensor.mutable_data_ptr()};
}

}  // namespace

void quantize(const at::Tensor& matrix, const Quantized4& into, const QuantizedKernels& by) {
  by.quantize(at::get_num_threads(), numbers_of(matrix), matrix.numel(), into.block, steps_of(into.book),
              into.codes.mutable_data_ptr<uint8_t>(), into.scales.mutable_data_ptr<float>());
}

void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into, const QuantizedKernels& by) {
  CodedBlocks blocks{.count = into.numel(),
                     .block = from.block,
                     .codes = from.codes.const_data_ptr<uint8_t>(),
                     .book = values_of(from.book).data()};
  if (from.has_quantized_scales()) {
    blocks.scale_codes = from.scales.const_data_ptr<uint8_t>();
    blocks.tree = scale_values().data();
    blocks.outer_scales = from.scale_scales.const_data_ptr<float>();
    blocks.offset = from.scale_offset.item<float>();
  } else {
    blocks.scales = from.scales.const_data_ptr<float>();
  }
  by.dequantize(at::get_num_threads(), blocks, number_of(stored), written_numbers_of(into));
}

void quantize(const at::Tensor& matrix, const QuantizedRows& into, const QuantizedKernels& by) {
  by.quantize_rows(at::get_num_threads(), numbers_of(matrix), into.codes.size(0), into.codes.size(1),
                   into.codes.mutable_data_ptr<int8_t>(), into.scales.mutable_data_ptr<float>());
}

void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into, const QuantizedKernels& by) {
  const CodedRows rows{.rows = from.codes.size(0),
                       .columns = from.codes.size(1),
                       .codes = from.codes.const_data_ptr<int8_t>(),
                       .scales = from.scales.const_data_ptr<float>()};
  by.dequantize_rows(at::get_num_threads(), rows, number_of(stored), written_numbers_of(into));
}

}  // namespace gputrain::ops::cpu
