#include <gtest/gtest.h>

#include "config/bad_values.hpp"
#include "gputrain/config/reference.hpp"
#include "job.hpp"

namespace gputrain::app {
namespace {

TEST(JobKeys, TheTablesAreSound) { EXPECT_EQ(config::faults_of(job_schema()), std::vector<std::string>{}); }

constexpr const char* kGoodJob =
    "model: {type: mlp}\n"
    "data: {train: {path: x, format: text}}\n"
    "train: {max_steps: 1, global_batch_size: 1}\n";

TEST(JobKeys, EveryKeyRefusesAWrongTypeAValueOutOfRangeAndAMisspelling) {
  const auto bad_values = config::BadValues::of(job_schema());
  EXPECT_GT(bad_values.size(), 300U);
  for (const auto& bad : bad_values) {
    EXPECT_TRUE(config::is_refused(job_schema(), {.file = "job.yaml", .text = kGoodJob}, bad)) << bad.set.back();
  }
}

}  // namespace
}  // namespace gputrain::app
