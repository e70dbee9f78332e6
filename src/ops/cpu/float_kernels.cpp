#include "float_kernels.hpp"

#include "gputrain/device/host.hpp"

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
    const auto units = device::vector_units();
    if (units >= device::VectorUnits::avx512) found[count++] = &kAvx512Kernels;
    if (units >= device::VectorUnits::avx2) found[count++] = &kAvx2Kernels;
#endif
    found[count] = &kBaseKernels;
    return true;
  }();
  static_cast<void>(once);
  return found;
}

const FloatKernels& float_kernels() { return *available_kernels()[0]; }

}  // namespace gputrain::ops::cpu
