// quantize() and dequantize() of gputrain/ops/quantized.hpp on a CPU, by the loops of quantized_kernels.hpp.
#pragma once

#include "gputrain/ops/quantized.hpp"
#include "quantized_kernels.hpp"

namespace gputrain::ops::cpu {

/// Writes plain scales.
void quantize(const at::Tensor& matrix, const Quantized4& into, const QuantizedKernels& by = quantized_kernels());
void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into,
                const QuantizedKernels& by = quantized_kernels());
void quantize(const at::Tensor& matrix, const QuantizedRows& into, const QuantizedKernels& by = quantized_kernels());
void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into,
                const QuantizedKernels& by = quantized_kernels());

}  // namespace gputrain::ops::cpu
