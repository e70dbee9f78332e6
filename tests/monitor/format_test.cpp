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

TEST(Format, GivesMoneyTwoDigitsBehindThePoint) {
  EXPECT_EQ(money(12.4), "12.40");
  EXPECT_EQ(money(0), "0.00");
  EXPECT_EQ(money(0.01), "0.01");
  EXPECT_EQ(money(4.29e-4), "4.29e-4");
  EXPECT_EQ(money(1234567.891), "1234567.89");
}

TEST(Format, KeepsTheWidthOfNumbersInColumns) {
  EXPECT_EQ(fixed(2.986), "2.9860");
  EXPECT_EQ(fixed(0.642), "0.6420");
  EXPECT_EQ(fixed(0.63654), "0.6365");
  EXPECT_EQ(fixed(9.999951), "10.000");
  EXPECT_EQ(fixed(123.4567), "123.46");
  EXPECT_EQ(fixed(1234.567), "1234.6");
  EXPECT_EQ(fixed(12345.67), "12346");
  EXPECT_EQ(fixed(123456.7), "123457");
  EXPECT_EQ(fixed(1234567), "1.23e6");
  EXPECT_EQ(fixed(0.0021), "2.10e-3");
  EXPECT_EQ(fixed(0.0099999), "1.00e-2");
  EXPECT_EQ(fixed(4.29e-11), "4.29e-11");
  EXPECT_EQ(fixed(-0.5), "-0.5000");
  EXPECT_EQ(fixed(0), "0.0000");
  EXPECT_EQ(fixed(-std::nan("")), "nan");
  EXPECT_EQ(fixed(INFINITY), "inf");
}

TEST(Format, ChoosesUnitOfDuration) {
  EXPECT_EQ(duration(0), "0ms");
  EXPECT_EQ(duration(0.00042), "0.4ms");
  EXPECT_EQ(duration(0.00994), "9.9ms");
  EXPECT_EQ(duration(0.00996), "10ms");
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
