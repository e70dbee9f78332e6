// Runs the tests of this program on a GPU; without one they are skipped.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "gputrain/device/runtime.hpp"
#include "ops/kernels/kernel_case.hpp"

namespace gputrain::testing_support {

at::Device kernel_device() { return {at::kCUDA, 0}; }

namespace {

class NeedsGpu final : public testing::Environment {
 public:
  void SetUp() override {
    if (device::gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    at::globalContext().setDeterministicAlgorithms(true,
                                                   /*warn_only=*/true);  // kernels are taken without a look at a clock
  }
};

const auto* const kNeedsGpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace gputrain::testing_support
