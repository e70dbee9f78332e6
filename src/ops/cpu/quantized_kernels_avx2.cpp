#include "quantized_kernels.hpp"

#include "number_conversions.inl"
#include "quantized_kernels.inl"

namespace gputrain::ops::cpu {
extern const QuantizedKernels kAvx2QuantizedKernels;
const QuantizedKernels kAvx2QuantizedKernels = quantized_kernels_named("avx2");
}  // namespace gputrain::ops::cpu
