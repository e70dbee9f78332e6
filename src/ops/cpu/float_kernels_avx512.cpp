#include "float_kernels.hpp"
#include "float_kernels.inl"

namespace gputrain::ops::cpu {
extern const FloatKernels kAvx512Kernels;
const FloatKernels kAvx512Kernels{"avx512", gelu_tanh, gelu_tanh_backward, norm, norm_backward};
}  // namespace gputrain::ops::cpu
