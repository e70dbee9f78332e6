// optimizer.master: bf16 and optimizer.averages: bf16 in whole runs: they go on to the bit, keep little, and say what
// they do not go with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "gputrain/checkpoint/safetensors.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

const std::string kGpt = "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 64, block_size: 16}}\n";
const std::string kLlama =
    "model: {type: gpt, config: {n_layer: 1, n_head: 4, n_kv_head: 2, n_embd: 64, block_size: 16, position: rotary, "
    "norm: rmsnorm, activation: swiglu, bias: false, tie_embeddings: false}}\n";
const std::string kExperts =
    "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16, position: rotary, norm: rmsnorm, "
    "activation: swiglu, n_expert: 4, experts_per_token: 2}}\n";
const std::string kConvnet =
    "model: {type: convnet, config: {channels: [4, 6], batch_norm: true}}\n"
    "data: {train: {format: synthetic, samples: 90}, image: {size: 8}}\n";
const std::string kAdamW = "{type: adamw, lr: 3e-3, weight_decay: 0.1, master: bf16}";
const std::string kNarrowAdamW = "{type: adamw, lr: 3e-3, weight_decay: 0.1, master: bf16, averages: bf16}";
const std::string kAdamW8bit = "{type: adamw8bit, lr: 3e-3, weight_decay: 0.1, master: bf16, min_8bit_size: 1024}";

std::string write_job(const TemporaryFolder& folder, const std::string& model, const std::string& optimizer) {
  const bool is_text = model.find("data:") == std::string::npos;
  return folder.write("job.yaml",
                      "schema: 1\ndevice: cpu\nprecision: bf16\n" + model + "optimizer: " + optimizer + "\n" +
                          (is_text ? "data: {train: {path: " + write_text(folder) +
                                         ", format: text}, val: {split: 10%}}\neval: {interval: 10}\n"
                                   : "") +
                          "lr_scheduler: {type: cosine, warmup: 4}\n"
                          "train: {max_steps: 20, global_batch_size: 8, micro_batch_size: 2, max_grad_norm: 1.0}\n"
                          "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
}

struct Case {
  std::string name, model, optimizer;
  int ranks = 1;
  std::vector<std::string> more = {};

  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name; }
};

std::vector<Case> cases() {
  const auto set = [](const std::string& what) { return std::vector<std::string>{"--set", what}; };
  return {{"Gpt", kGpt, kAdamW, 1, set("train.ema={decay: 0.9}")},
          {"GptWithNarrowAverages", kGpt, kNarrowAdamW},
          {"NarrowAveragesOfWideWeights", kGpt, "{type: adamw, lr: 3e-3, averages: bf16}", 1, set("precision=fp32")},
          {"Llama", kLlama, kAdamW8bit, 1, set("train.activation_checkpointing=block")},
          {"Experts", kExperts, kAdamW8bit},
          {"Convnet", kConvnet, kAdamW},
          {"TwoRanks", kLlama, kAdamW8bit, 2},
          {"TwoRanksThatShareTheOptimizer", kGpt, kNarrowAdamW, 2, set("parallel.shard=optimizer")},
          {"TwoRanksThatShareTheGradients", kLlama, kAdamW8bit, 2, set("parallel.shard=gradients")},
          {"TwoRanksThatShareTheWeights", kLlama, kAdamW, 2, set("parallel.shard=parameters")}};
}

class NarrowMasterRun : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, NarrowMasterRun, ::testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(NarrowMasterRun, GoesOnToTheBitAndLearns) {
  const TemporaryFolder folder;
  const Case& tested = GetParam();
  const std::string job = write_job(folder, tested.model, tested.optimizer), whole = folder / "whole";
  const Result straight = ranks(tested.ranks, job, whole, tested.more);
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  copy_without_the_end(whole, folder / "again");
  const Result resumed = ranks(tested.ranks, job, folder / "again", tested.more);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(timeless_metrics(whole + "/metrics.jsonl"), timeless_metrics(folder / "again/metrics.jsonl"));
  EXPECT_EQ(read_file(whole + "/model.safetensors"), read_file(folder / "again/model.safetensors"));
  std::vector<std::string> wide = tested.more;
  wide.insert(wide.end(), {"--set", "optimizer.master=fp32"});
  if (tested.optimizer.find("averages") != std::string::npos)
    wide.insert(wide.end(), {"--set", "optimizer.averages=fp32"});
  ASSERT_EQ(ranks(tested.ranks, job, folder / "wide", wide).exit_code, 0);
  const double ours = losses_of(whole).back(), theirs = losses_of(folder / "wide").back();
  EXPECT_NEAR(ours / theirs, 1, 0.05);
}

TEST(NarrowMaster, HasNoWiderWeightsAnywhere) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder, kLlama, kAdamW8bit);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rounded stochastically"));
  const checkpoint::SafetensorsFile weights(folder / "run/model.safetensors");
  for (const std::string& name : weights.names()) EXPECT_EQ(weights.tensor(name).scalar_type(), at::kBFloat16) << name;
}

TEST(NarrowMaster, RefusesWhatItDoesNotGoWith) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder, kLlama, kAdamW);
  for (const char* what : {"precision=fp32", "precision=fp16", "precision=tf32", "optimizer={type: sgd, master: bf16}",
                           "parallel.tensor=2", "parallel.pipeline=2", "parallel.compress=fp16"}) {
    const Result result = gputrain({"validate", job, "--set", what});
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_THAT(result.err + result.out, HasSubstr("optimizer.master")) << what;
  }
}

TEST(NarrowMaster, IsNoReasonNotToUseItsWeightsInFp32) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(gputrain({"run", write_job(folder, kGpt, kAdamW), "--output-dir", run}).exit_code, 0);
  const std::vector<std::string> in_fp32{"--set", "precision=fp32"};
  for (std::vector<std::string> command : {std::vector<std::string>{"eval", run + "/job.resolved.yaml"},
                                           {"generate", run, "--prompt", "a", "--max-new-tokens", "2"},
                                           {"export", run, folder / "model.onnx", "--format", "onnx"}}) {
    if (command.front() != "export") command.insert(command.end(), in_fp32.begin(), in_fp32.end());
    const Result result = gputrain(command);
    EXPECT_EQ(result.exit_code, 0) << command.front() << result.err;
  }
}

TEST(NarrowMaster, TellsOfTooManyMicroBatches) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder, kGpt, kAdamW);
  for (const int samples : {256, 258}) {
    const std::string run = folder / std::to_string(samples);
    const Result result = gputrain({"run", job, "--output-dir", run, "--set", "train.max_steps=1", "--set",
                                    "train.global_batch_size=" + std::to_string(samples)});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string text = "optimizer.master adds up 129 micro-batches in bf16, which loses small gradients";
    EXPECT_EQ(result.out.find(text) != std::string::npos || result.err.find(text) != std::string::npos, samples > 256);
  }
}

TEST(NarrowMaster, CannotChangeInARun) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder, kGpt, kAdamW);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  for (const char* what : {"optimizer.master=fp32", "optimizer.averages=bf16"}) {
    const Result result = gputrain(
        {"run", job, "--accept", "--output-dir", folder / "run", "--set", what, "--set", "train.max_steps=30"});
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_THAT(result.err, HasSubstr(std::string(what).substr(0, std::string(what).find('=')))) << what;
  }
}

}  // namespace
}  // namespace gputrain::testing_support
