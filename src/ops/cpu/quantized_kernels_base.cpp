#include "quantized_kernels.hpp"

#include "number_conversions.inl"
#include "quantized_kernels.inl"

namespace gputrain::ops::cpu {
extern const QuantizedKernels kBaseQuantizedKernels;
const QuantizedKernels kBaseQuantizedKernels = quantized_kernels_named("base");
}  // namespace gputrain::ops::cpu
