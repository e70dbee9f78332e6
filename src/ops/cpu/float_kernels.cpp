#include "float_kernels.hpp"

namespace gputrain::ops::cpu {

extern const FloatKernels kBaseKernels;
#if defined(__x86_64__)
extern const FloatKernels kAvx2Kernels, kAvx512Kernels;
#endif

const FloatKernels* const* available_kernels() {
  static const FloatKernels* found[4] = {};
  static const bool once = [] {
    int count = 0;
#if defined(__x86_64__)
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512) found[count++] = &kAvx512Kernels;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = &kAvx2Kernels;
#endif
    found[count] = &kBaseKernels;
    return true;
  }();
  static_cast<void>(once);
  return found;
}

const FloatKernels& float_kernels() { return *available_kernels()[0]; }

}  // namespace gputrain::ops::cpu
