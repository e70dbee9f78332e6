#include "gputrain/core/numbers.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace gputrain {
namespace {

TEST(NumberText, GroupsByThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(12345678), "12,345,678");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(grouped(-123), "-123");
}

TEST(NumberText, UsesSingularForOne) {
  EXPECT_EQ(counted(1, "sample"), "1 sample");
  EXPECT_EQ(counted(0, "sample"), "0 samples");
  EXPECT_EQ(counted(12345, "class"), "12,345 classes");
  EXPECT_EQ(counted(2, "batch"), "2 batches");
}

TEST(CeilDivide, HandlesLargestNumbers) {
  EXPECT_EQ(ceil_divide(0, 4), 0);
  EXPECT_EQ(ceil_divide(8, 4), 2);
  EXPECT_EQ(ceil_divide(9, 4), 3);
  EXPECT_EQ(ceil_divide(INT64_MAX, INT64_MAX), 1);
}

}  // namespace
}  // namespace gputrain
