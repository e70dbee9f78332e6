#include "float_kernels.hpp"

#include "conv_gradient.inl"
#include "float_kernels.inl"

namespace gputrain::ops::cpu {
extern const FloatKernels kAvx512Kernels;
const FloatKernels kAvx512Kernels = kernels_named("avx512");
}  // namespace gputrain::ops::cpu
