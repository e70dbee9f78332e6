#include "quantized_kernels.hpp"

#include "number_conversions.inl"
#include "quantized_kernels.inl"

namespace gputrain::ops::cpu {
extern const QuantizedKernels kAvx512QuantizedKernels;
const QuantizedKernels kAvx512QuantizedKernels = quantized_kernels_named("avx512");
}  // namespace gputrain::ops::cpu
