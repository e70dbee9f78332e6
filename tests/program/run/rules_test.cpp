// Update rules with state of single weights, and a schedule that follows evaluations, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "support/checkpoints.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> with(const std::vector<std::string>& settings) {
  std::vector<std::string> arguments;
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

/// A run of one process in a folder.
Result run(const std::string& job, const std::string& output, const std::vector<std::string>& settings = {},
           const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"run", job, "--output-dir", output};
  for (const auto& part : {more, with(settings)}) arguments.insert(arguments.end(), part.begin(), part.end());
  return gputrain(arguments);
}

class StateOfWeights : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string rule_ = std::string("optimizer=") + GetParam();
  const TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: null}\ncheckpoint: {interval: 5, keep_last: 2}\n");
};
INSTANTIATE_TEST_SUITE_P(Rules, StateOfWeights,
                         ::testing::Values("{type: adafactor, lr: 1e-2, weight_decay: 0.1}",
                                           "{type: adamw8bit, lr: 3e-3, weight_decay: 0.1, min_8bit_size: 64}"),
                         [](const auto& entry) { return entry.index == 0 ? "Adafactor" : "AdamW8bit"; });

TEST_P(StateOfWeights, ResumesExactly) {
  ASSERT_EQ(run(job_, folder_ / "whole", {rule_}).exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  const Result result = run(job_, folder_ / "cut", {rule_});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
  EXPECT_EQ(losses_of(folder_ / "whole"), losses_of(folder_ / "cut"));
  EXPECT_THAT(differing_tensors(folder_ / "whole", folder_ / "cut"), IsEmpty());
  const auto losses = losses_of(folder_ / "whole");
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(gputrain({"replay", folder_ / "whole", "--step", "20"}).exit_code, 0);
}

TEST_P(StateOfWeights, GoesFromRanksToOtherRanks) {
  ASSERT_EQ(run(job_, folder_ / "one", {rule_}).exit_code, 0);
  const auto shared = with({rule_, "parallel.shard=gradients"}), whole = with({rule_});
  const Result three = ranks(3, job_, folder_ / "three", shared);
  ASSERT_EQ(three.exit_code, 0) << three.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "three/metrics.jsonl", 1e-9);
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "three"}).exit_code, 0);
  for (const auto& [world, settings] : {std::pair(1, whole), {2, shared}, {2, whole}}) {
    const std::string again = folder_ / ("again" + std::to_string(world) + (settings == shared ? "shared" : ""));
    copy_without_the_end(folder_ / "three", again);
    const Result result = ranks(world, job_, again, settings);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
    expect_equal_losses(folder_ / "one/metrics.jsonl", again + "/metrics.jsonl", 1e-9);
  }
}

TEST_P(StateOfWeights, IsThatOfTrainedWeights) {
  const std::string freeze = "model.freeze=[\"*.mlp.*\"]";
  ASSERT_EQ(run(job_, folder_ / "run", {rule_, freeze, "train.max_steps=10"}).exit_code, 0);
  const auto kinds_of = [&](const std::string& step) {
    const auto opened = checkpoint::Checkpoint::open(folder_ / ("run/ckpt/step-000000" + step));
    return opened.part("optimizer").names();
  };
  EXPECT_THAT(kinds_of("10"), Not(Contains(HasSubstr("mlp"))));
  const Result other = run(job_, folder_ / "run", {rule_, "model.freeze=[\"*.attn.*\"]"}, {"--accept"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("resume  step 10"));
  EXPECT_THAT(kinds_of("20"), AllOf(Contains(HasSubstr("mlp.c_fc.weight")), Contains(HasSubstr("since.")),
                                    Not(Contains(HasSubstr("attn")))));
}

class Plateau : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  // The threshold lets the second evaluation count as no gain, and every one after it.
  const std::string job_ = write_gpt_job(
      folder_,
      "lr_scheduler: {type: plateau, factor: 0.5, patience: 1, cooldown: 1, threshold: 9, threshold_mode: abs}\n"
      "log: {interval: 1}\neval: {interval: 2}\ncheckpoint: {interval: 5, keep_best: 0, keep_last: 2}\n");
};

// Evaluations after steps 2, 4, ...: the first gains, those of 4 and 6 do not, that of 8 cools down, 10 and 12 do not.
TEST_F(Plateau, LowersTheRateAfterEvaluationsWithoutGain) {
  ASSERT_EQ(run(job_, folder_ / "whole").exit_code, 0);
  const std::vector<double> rates = values(folder_ / "whole/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 20U);
  for (size_t i = 0; i < rates.size(); ++i) {
    const int falls = i < 6 ? 0 : i < 12 ? 1 : i < 18 ? 2 : 3;
    EXPECT_DOUBLE_EQ(rates[i], 3e-3 * std::pow(0.5, falls)) << i;
  }
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  const Result result = run(job_, folder_ / "cut");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
  EXPECT_EQ(rates, values(folder_ / "cut/metrics.jsonl", "train/lr"));
  EXPECT_THAT(differing_tensors(folder_ / "whole", folder_ / "cut"), IsEmpty());
  const Result replay = gputrain({"replay", folder_ / "whole", "--step", "20"});
  EXPECT_EQ(replay.exit_code, 0) << replay.out;
  const Result two = ranks(2, job_, folder_ / "two");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(rates, values(folder_ / "two/metrics.jsonl", "train/lr"));
}

TEST_F(Plateau, LeavesNothingToAnotherCurve) {
  ASSERT_EQ(run(job_, folder_ / "run", {"train.max_steps=10"}).exit_code, 0);
  const std::string constant = write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: 2}\n");
  const Result other = run(constant, folder_ / "run", {}, {"--accept"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  const std::vector<double> rates = values(folder_ / "run/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 20U);
  EXPECT_DOUBLE_EQ(rates[9], 1.5e-3);
  EXPECT_DOUBLE_EQ(rates[10], 3e-3);
}

TEST_F(Plateau, NeedsEvaluations) {
  for (const char* none : {"eval.interval=null", "data.val=null"}) {
    const Result refused = run(job_, folder_ / "none", {none});
    EXPECT_EQ(refused.exit_code, 2) << none;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("lr_scheduler.type"), HasSubstr("plateau follows evaluations")));
  }
}

TEST(LrBaseBatchSize, IsToldWithTheRate) {
  const TemporaryFolder folder;
  const Result result = run(write_gpt_job(folder), folder / "run", {"optimizer.lr_base_batch_size=4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lr 6e-3 (3e-3 x 8 / 4)"));
}

TEST(Experts, TellHowEvenlyTokensAreSpread) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 5}\neval: {interval: null}\n");
  const std::string experts =
      "model.config={n_layer: 2, n_head: 2, n_embd: 16, position: rotary, norm: rmsnorm, activation: swiglu, "
      "n_expert: 4, experts_per_token: 1, router_aux_loss_coef: 0}";
  const Result result = run(job, folder / "run", {experts});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex(" experts [0-9.]+-[0-9.]+%"));
  const auto most = values(folder / "run/metrics.jsonl", "train/expert_share_max"),
             least = values(folder / "run/metrics.jsonl", "train/expert_share_min");
  ASSERT_EQ(most.size(), 4U);
  for (size_t i = 0; i < most.size(); ++i) {
    EXPECT_GE(most[i], 0.25);
    EXPECT_LE(most[i], 1);
    EXPECT_LE(least[i], 0.25);
    EXPECT_GE(least[i], 0);
  }
}

TEST(Experts, TellThatClassifiersHaveNoLossesOfRouters) {
  const TemporaryFolder folder;
  std::string records;
  for (int i = 0; i < 16; ++i)
    records += R"({"text": "word", "label": ")" + std::string(i % 2 == 0 ? "a" : "b") + "\"}\n";
  const std::string job = folder.write("job.yaml",
                                       "schema: 1\ndevice: cpu\nprecision: fp32\n"
                                       "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, position: "
                                       "rotary, norm: rmsnorm, activation: swiglu, "
                                       "n_expert: 4, head: classifier, router_z_loss_coef: 0.5}}\n"
                                       "data: {train: {path: " +
                                           folder.write("texts.jsonl", records) +
                                           ", format: jsonl}, text: {tokenizer: bytes, max_length: 8}}\n"
                                           "train: {max_steps: 1, global_batch_size: 4}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("model.config.router_z_loss_coef has no effect"));
  EXPECT_THAT(result.out + result.err, ::testing::Not(HasSubstr("router_aux_loss_coef")));
}

}  // namespace
}  // namespace gputrain::testing_support
