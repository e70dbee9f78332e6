// Runs the operators' tests on a GPU.
#include <ATen/Context.h>

#include "gputrain/device/runtime.hpp"
#include "ops/kernels/kernel_case.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::testing_support {

int emulated_capability = 0;  // a GPU has its own

at::Device kernel_device() { return {at::kCUDA, 0}; }

bool has_kernel_device() {
  // Selects kernels without measuring time.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  return device::gpu_count() > 0;
}

}  // namespace gputrain::testing_support
