// Counts GPUs with a fake driver, as a GPU build does, on machines without GPUs.
#include "../../src/launch/environment/gpus.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace gputrain::launch {
namespace {

TEST(GpuCount, ComesFromTheDriver) {
  ASSERT_EQ(setenv("FAKE_DRIVER_GPUS", "3", 1), 0);
  EXPECT_EQ(gpus_here(), 3);
  ASSERT_EQ(setenv("FAKE_DRIVER_GPUS", "0", 1), 0);
  EXPECT_EQ(gpus_here(), 0);
}

TEST(GpuCount, IsZeroWhenDriverFails) {
  ASSERT_EQ(unsetenv("FAKE_DRIVER_GPUS"), 0);
  EXPECT_EQ(gpus_here(), 0);
}

}  // namespace
}  // namespace gputrain::launch
