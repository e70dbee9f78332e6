#include "float_kernels.hpp"

#include "conv_gradient.inl"
#include "float_kernels.inl"

namespace gputrain::ops::cpu {
extern const FloatKernels kAvx2Kernels;
const FloatKernels kAvx2Kernels = kernels_named("avx2");
}  // namespace gputrain::ops::cpu
