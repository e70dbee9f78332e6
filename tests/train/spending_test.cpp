#include "gputrain/train/spending.hpp"

#include <gtest/gtest.h>

namespace gputrain::train {
namespace {

TEST(Spending, IsOverAtItsLimit) {
  EXPECT_FALSE((Spending{.sum = 99.99, .per_hour = 2, .most = 100}.is_over()));
  EXPECT_TRUE((Spending{.sum = 100, .per_hour = 2, .most = 100}.is_over()));
  EXPECT_FALSE((Spending{.sum = 1e9, .per_hour = 2}.is_over())) << "there is no limit";
}

TEST(Spending, TellsSumLimitPriceAndWhatTheWholeRunCosts) {
  Spending spending{.sum = 12.4, .per_hour = 2.5};
  EXPECT_EQ(spending.text(), "12.40  2.5 per hour");
  spending.most = 100;
  EXPECT_EQ(spending.so_far(), "12.40 of 100");
  EXPECT_EQ(spending.text(), "12.40 of 100  2.5 per hour");
  spending.expected = 61;
  EXPECT_EQ(spending.text(), "12.40 of 100  2.5 per hour  about 61.00 for the whole run");
  spending.expected = 120;
  EXPECT_EQ(spending.text(), "12.40 of 100  2.5 per hour  about 120.00 for the whole run, more than limits.max_cost");
  spending.expected = 12.4;  // it is done
  EXPECT_EQ(spending.text(), "12.40 of 100  2.5 per hour");
  EXPECT_EQ((Spending{.sum = 0.00042, .per_hour = 1}.so_far()), "4.2e-4");
}

TEST(Spending, NamesALimitThatIsEnoughToGoOn) {
  EXPECT_EQ((Spending{.sum = 100.02, .per_hour = 2, .most = 100, .expected = 131.7}.setting_to_go_on()),
            "limits.max_cost=140");
  EXPECT_EQ((Spending{.sum = 4.01, .per_hour = 2, .most = 4}.setting_to_go_on()), "limits.max_cost=8.1");
  EXPECT_EQ((Spending{.sum = 3, .per_hour = 2, .most = 4}.setting_to_go_on()), "limits.max_cost=8");
  EXPECT_EQ((Spending{.sum = 1e-9, .per_hour = 2, .most = 1e-9}.setting_to_go_on()), "limits.max_cost=2e-9");
  for (const double sum : {0.0123, 1.0, 9.96, 55.5, 12345.0}) {
    const Spending spent{.sum = sum, .per_hour = 2, .most = sum, .expected = sum * 1.01};
    EXPECT_GE(spent.limit_to_go_on(), *spent.expected * (1 - 1e-9)) << sum;
    EXPECT_LE(spent.limit_to_go_on(), *spent.expected * 1.1) << sum;
  }
}

}  // namespace
}  // namespace gputrain::train
