// A resumed run keeps its global batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

/// A job that sets only its micro-batch, trained for ten steps of 16 samples.
class KeptBatch : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(go_on({"train.max_steps=10"}).exit_code, 0); }
  Result go_on(const std::vector<std::string>& settings, bool accept = false) const {
    std::vector<std::string> words{"run", job_, "--output-dir", run_};
    for (const auto& setting : settings) words.insert(words.end(), {"--set", setting});
    if (accept) words.emplace_back("--accept");
    return gputrain(words);
  }

  TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_, "", "{max_steps: 10, micro_batch_size: 8, gradient_accumulation_steps: 2}");
  const std::string run_ = folder_ / "run";
};

TEST_F(KeptBatch, SplitsIntoSmallerMicroBatchAndLogsIt) {
  const Result result = go_on({"train.micro_batch_size=4", "train.max_steps=12"}, true);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("256 tokens/step = 4 micro x 16 seq x 1 rank x 4 accumulation"));
  EXPECT_THAT(read_file(run_ + "/logs/rank_0000.log"), HasSubstr("the global batch stays at 16 samples"));
}

TEST_F(KeptBatch, SurvivesMissingMirror) {
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "nowhere");
  const Result result = go_on({"train.micro_batch_size=4", "checkpoint.mirror=" + (folder_ / "nowhere")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(KeptBatch, YieldsToAccumulationOnlyIfAccepted) {
  const std::vector<std::string> larger{"train.gradient_accumulation_steps=4", "train.max_steps=12"};
  const Result refused = go_on(larger);
  EXPECT_EQ(refused.exit_code, 2);
  const Result accepted = go_on(larger, true);
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.out, HasSubstr("512 tokens/step = 8 micro x 16 seq x 1 rank x 4 accumulation"));
}

}  // namespace
}  // namespace gputrain::testing_support
