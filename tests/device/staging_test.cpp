#include "gputrain/device/staging.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

// Without a GPU, page-locked memory cannot be allocated: the same failure as when the system has none left.
TEST(Staging, FallsBackToOrdinaryMemoryAndSaysSoOnce) {
  Staging staging;
  ::testing::internal::CaptureStderr();
  const at::Tensor first = staging.empty_strided({2, 3}, {1, 2}, at::kHalf);
  const at::Tensor second = staging.empty_strided({5}, {1}, at::kFloat);
  const std::string told = ::testing::internal::GetCapturedStderr();
  const std::string warning = "warning: no page-locked memory";
  EXPECT_EQ(first.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(first.strides(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(first.scalar_type(), at::kHalf);
  EXPECT_EQ(second.numel(), 5);
  if (gpu_count() > 0) {
    EXPECT_EQ(told, "");
    EXPECT_TRUE(first.is_pinned() && second.is_pinned());
    return;
  }
  EXPECT_FALSE(first.is_pinned());
  EXPECT_THAT(told, ::testing::StartsWith(warning));
  EXPECT_EQ(told.find(warning, 1), std::string::npos) << told;
}

}  // namespace
}  // namespace gputrain::device
