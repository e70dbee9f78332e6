#include "float_kernels.hpp"

#include "conv_gradient.inl"
#include "float_kernels.inl"

namespace gputrain::ops::cpu {
extern const FloatKernels kBaseKernels;
const FloatKernels kBaseKernels = kernels_named("base");
}  // namespace gputrain::ops::cpu
