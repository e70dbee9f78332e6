#include "gputrain/monitor/format.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace gputrain::monitor {
namespace {

TEST(Format, ShortensLargeNumbers) {
  EXPECT_EQ(compact(950), "950");
  EXPECT_EQ(compact(12.345), "12.3");
  EXPECT_EQ(compact(999.7), "1.00k");
  EXPECT_EQ(compact(1744000), "1.74M");
  EXPECT_EQ(compact(10.26e9), "10.3B");
}

TEST(Format, KeepsFourSignificantDigits) {
  EXPECT_EQ(significant(0), "0");
  EXPECT_EQ(significant(-std::nan("")), "nan");
  EXPECT_EQ(significant(-INFINITY), "-inf");
  EXPECT_EQ(significant(5.40213), "5.402");
  EXPECT_EQ(significant(0.91), "0.91");
  EXPECT_EQ(significant(4.29e-4), "4.29e-4");
  EXPECT_EQ(significant(1e-3), "1e-3");
  EXPECT_EQ(significant(99.2), "99.2");
}

TEST(Format, ChoosesUnitOfDuration) {
  EXPECT_EQ(duration(0.302), "302ms");
  EXPECT_EQ(duration(3.12), "3.1s");
  EXPECT_EQ(duration(59.7), "1m0s");
  EXPECT_EQ(duration(250), "4m10s");
  EXPECT_EQ(duration(5760), "1h36m");
  EXPECT_EQ(duration(183600), "2d3h");
}

TEST(Format, ChoosesUnitOfBytes) {
  EXPECT_EQ(bytes(512), "512 B");
  EXPECT_EQ(bytes(41.3 * 1024 * 1024), "41.3 MiB");
  EXPECT_EQ(bytes(79.1 * 1024 * 1024 * 1024), "79.1 GiB");
}

}  // namespace
}  // namespace gputrain::monitor
