#include "float_kernels.hpp"
#include "float_kernels.inl"

namespace gputrain::ops::cpu {
extern const FloatKernels kAvx512Kernels;
const FloatKernels kAvx512Kernels = kernels_named("avx512");
}  // namespace gputrain::ops::cpu
