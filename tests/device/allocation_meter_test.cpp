#include "gputrain/device/allocation_meter.hpp"

#include <optional>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "gputrain/device/host_allocator.hpp"

namespace gputrain::device {
namespace {

at::Tensor block(int64_t bytes) { return at::empty({bytes}, at::kByte); }

class AllocationMeterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
};

TEST_F(AllocationMeterTest, CountsBlocksToTheByte) {
  const AllocationMeter meter;
  at::Tensor small = block(100), large = block(3'000'001);
  EXPECT_EQ(meter.live_bytes(), 3'000'101);
  large.reset();
  EXPECT_EQ(meter.live_bytes(), 100);
  const at::Tensor later = block(1000);
  EXPECT_EQ(meter.live_bytes(), 1100);
  EXPECT_EQ(meter.peak_bytes(), 3'000'101);
}

TEST_F(AllocationMeterTest, IgnoresEarlierBlocks) {
  std::optional<at::Tensor> earlier;
  {
    const AllocationMeter meter;
    earlier = block(5000);
  }
  const AllocationMeter meter;
  EXPECT_EQ(meter.live_bytes(), 0);
  earlier.reset();
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 0);
}

TEST_F(AllocationMeterTest, CountsOnEveryThread) {
  const AllocationMeter meter;
  std::vector<std::thread> threads;
  std::vector<at::Tensor> held(4);
  for (size_t i = 0; i < held.size(); ++i) {
    threads.emplace_back([i, &held] {
      for (int round = 0; round < 200; ++round) held[i] = at::full({700}, static_cast<int64_t>(i), at::kLong);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(meter.live_bytes(), 4 * 700 * 8);
  for (size_t i = 0; i < held.size(); ++i) EXPECT_TRUE(held[i].eq(static_cast<int64_t>(i)).all().item<bool>());
  EXPECT_LE(meter.peak_bytes(), 8 * 700 * 8 + 64);
}

}  // namespace
}  // namespace gputrain::device
