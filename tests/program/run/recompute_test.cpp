#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

// Two ranks, whose buckets start within the backward pass of a block.
TEST(ActivationCheckpointing, MatchesPlainTrainingOnTwoRanks) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\n");
  const auto train = [&](const std::string& how) {
    const std::string output = folder / how;
    const Result result = gputrain({"launch", "--nproc-per-node", "2", "run", job, "--output-dir", output, "--set",
                                    "train.activation_checkpointing=" + how, "--set", "model.config.n_layer=3", "--set",
                                    "model.config.dropout=0.1", "--set", "train.micro_batch_size=2", "--set",
                                    "parallel.bucket_cap_mb=0.01"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return timeless_metrics(output + "/metrics.jsonl");
  };
  const std::string plain = train("none");
  EXPECT_THAT(plain, HasSubstr("\"step\":20"));
  EXPECT_EQ(train("block"), plain);
  EXPECT_EQ(train("selective"), plain);
}

TEST(ActivationCheckpointing, RefusesModelWithoutBlocks) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\n"
                   "model: {type: mlp}\n"
                   "data: {train: {format: synthetic, samples: 16, num_classes: 2}, image: {size: 4}}\n"
                   "train: {max_steps: 2, global_batch_size: 4, activation_checkpointing: block}\n");
  const Result result = gputrain({"run", job, "--dry-run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("mlp has no blocks to recompute"));
}

}  // namespace
}  // namespace gputrain::testing_support
