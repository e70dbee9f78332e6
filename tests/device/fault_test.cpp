#include "gputrain/device/fault.hpp"

#include <stdexcept>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::device {
namespace {

c10::AcceleratorError cuda_error(int code, const std::string& text) {
  return {{__func__, __FILE__, __LINE__},
          code,
          "CUDA error: " + text + "\nCUDA kernel errors might be asynchronously reported"};
}

TEST(GpuFault, AsksForRestart) {
  const auto error = fault_of(cuda_error(214, "uncorrectable ECC error encountered"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ExitCode::restart);
  EXPECT_EQ(error->parts().what, "a GPU has failed: CUDA error: uncorrectable ECC error encountered");
}

TEST(GpuFault, ExcludesProgramErrors) {
  EXPECT_FALSE(fault_of(cuda_error(700, "an illegal memory access was encountered")));
  EXPECT_FALSE(fault_of(cuda_error(2, "out of memory")));
  EXPECT_FALSE(fault_of(std::runtime_error("CUDA error: unknown error")));
}

}  // namespace
}  // namespace gputrain::device
