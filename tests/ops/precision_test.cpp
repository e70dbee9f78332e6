#include "gputrain/ops/precision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::ops {
namespace {

TEST(Precision, ReadsNameOfEachFormat) {
  EXPECT_EQ(precision_from_name("fp64"), Precision::fp64);
  EXPECT_EQ(precision_from_name("fp32"), Precision::fp32);
  EXPECT_EQ(precision_from_name("tf32"), Precision::tf32);
  EXPECT_EQ(precision_from_name("bf16"), Precision::bf16);
  EXPECT_EQ(precision_from_name("fp16"), Precision::fp16);
}

TEST(Precision, ListsKnownNamesForUnknownOne) {
  try {
    precision_from_name("fp8");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("fp8"), testing::HasSubstr("bf16")));
  }
}

TEST(Precision, KeepsFullMasterWeightsAndScalesOnlyFp16) {
  EXPECT_EQ(policy_of(Precision::bf16).master, at::kFloat);
  EXPECT_EQ(policy_of(Precision::bf16).compute, at::kBFloat16);
  EXPECT_FALSE(policy_of(Precision::bf16).loss_scaling);
  EXPECT_TRUE(policy_of(Precision::fp16).loss_scaling);
  EXPECT_EQ(policy_of(Precision::fp64).master, at::kDouble);
  EXPECT_EQ(policy_of(Precision::fp64).compute, at::kDouble);
}

}  // namespace
}  // namespace gputrain::ops
