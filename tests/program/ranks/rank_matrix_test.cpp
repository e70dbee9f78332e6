// Several ranks train as one does: compares losses and gradient norms of twenty steps for every kind of model, over
// numbers of ranks, accumulation and sharding. An epoch ends with a partial step, in which some ranks have no samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

struct Network {
  std::string name;
  std::string job;  // without precision and batch sizes

  friend void PrintTo(const Network& it, std::ostream* to) { *to << it.name; }
};

// 8 samples per step, but 3 in every fourth or eighth step, the last of an epoch.
const std::vector<Network> kNetworks{
    {"gpt",
     "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 16, dropout: 0.0}}\n"
     "data: {train: {format: synthetic, samples: 59, vocab_size: 64}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n"},
    {"resnet18",
     "model: {type: resnet18, config: {stem: cifar, width: 8}}\n"
     "data: {train: {format: synthetic, samples: 27}, image: {size: 16}}\n"
     "optimizer: {type: sgd, lr: 0.01, momentum: 0.9, weight_decay: 1e-4}\n"
     "parallel: {sync_bn: true, timeout: 30s}\n"},
    {"unet",
     "model: {type: unet, config: {channels: [6, 8, 12]}}\n"
     "data: {train: {format: synthetic, samples: 27}, image: {size: 18}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n"
     "parallel: {sync_bn: true, timeout: 30s}\n"},
    {"vit",
     "model: {type: vit, config: {patch_size: 8, n_layer: 2, n_head: 2, n_embd: 32}}\n"
     "data: {train: {format: synthetic, samples: 27}, image: {size: 16}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n"}};

const std::vector<std::string> kShards{"none", "optimizer", "gradients", "parameters"};

std::string write_job(const TemporaryFolder& folder, const Network& network) {
  return folder.write(network.name + ".yaml", "schema: 1\ndevice: cpu\nprecision: fp64\n" + network.job +
                                                  "train: {max_steps: 20, global_batch_size: 8, max_grad_norm: 5}\n"
                                                  "log: {interval: 1}\ncheckpoint: {interval: null}\n");
}

std::vector<std::string> set(const std::vector<std::string>& settings) {
  std::vector<std::string> arguments;
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

/// The largest difference of a metric between two runs, relative to its size.
double distance(const std::string& a, const std::string& b, const std::string& metric) {
  const auto of_a = values(a + "/metrics.jsonl", metric), of_b = values(b + "/metrics.jsonl", metric);
  EXPECT_EQ(of_a.size(), 20U) << a;
  EXPECT_EQ(of_b.size(), of_a.size()) << b;
  double largest = 0;
  for (size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
    largest = std::max(largest, std::abs(of_a[i] - of_b[i]) / std::abs(of_a[i]));
  }
  return largest;
}

void expect_same_training(const std::string& a, const std::string& b) {
  for (const char* metric : {"train/loss", "train/grad_norm"})
    EXPECT_LT(distance(a, b, metric), 1e-9) << metric << " of " << b;
}

class RankMatrix : public ::testing::TestWithParam<Network> {
 protected:
  /// Trains and returns the run folder.
  std::string run(int world, const std::vector<std::string>& settings, const std::string& name) const {
    const Result result = ranks(world, job_, folder_ / name, set(settings));
    EXPECT_EQ(result.exit_code, 0) << name << result.err;
    return folder_ / name;
  }
  TemporaryFolder folder_;
  std::string job_ = write_job(folder_, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Networks, RankMatrix, ::testing::ValuesIn(kNetworks),
                         [](const auto& entry) { return entry.param.name; });

// Batch norm uses statistics of a micro-batch, so both sides take the same number of samples at a time over all ranks.
TEST_P(RankMatrix, MatchesOneRankIn64Bits) {
  for (const int accumulation : {1, 2}) {
    const std::string passes = "train.gradient_accumulation_steps=" + std::to_string(accumulation);
    const std::string one = run(1, {passes}, "one_x" + std::to_string(accumulation));
    for (const int world : {2, 4}) {
      for (const std::string& shard : kShards) {
        const std::string name = std::to_string(world) + "_x" + std::to_string(accumulation) + "_" + shard;
        expect_same_training(one, run(world, {passes, "parallel.shard=" + shard}, name));
        if (world < 4 || shard == "none" || shard == "gradients") continue;
        expect_same_training(one,
                             run(world, {passes, "parallel.shard=" + shard, "parallel.replicate=2"}, name + "_x2"));
      }
    }
  }
}

TEST_P(RankMatrix, MatchesOneRankWithUnequalShares) {
  const std::string one = run(1, {}, "one"), three = run(3, {}, "three");
  expect_same_training(one, three);  // 2, 3 and 3 samples
}

// Blocks that are recomputed in the backward pass repeat their collectives with the other ranks, but count no batch
// twice.
TEST_P(RankMatrix, MatchesOneRankWithRecomputation) {
  expect_same_training(run(1, {}, "one"), run(2, {"train.activation_checkpointing=block"}, "two"));
}

TEST_P(RankMatrix, ResumesWithAnotherSplit) {
  const std::string one = run(1, {}, "one"), mixed = folder_ / "mixed";
  Result result = ranks(2, job_, mixed, set({"checkpoint.interval=10"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_training(one, mixed);
  std::filesystem::remove_all(mixed + "/ckpt/step-00000020");
  result = ranks(3, job_, mixed, set({"checkpoint.interval=10"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("resume  step 10"));
  expect_same_training(one, mixed);
}

// Each run differs from the fp64 run by its own rounding, so two runs differ by at most twice as much.
TEST_P(RankMatrix, MatchesOneRankIn16BitsWithinRounding) {
  const std::string exact = run(1, {}, "exact");
  for (const std::string precision : {"bf16", "fp16"}) {
    const std::string one = run(1, {"precision=" + precision}, "one_" + precision);
    const std::string two = run(2, {"precision=" + precision}, "two_" + precision);
    const double rounding = distance(exact, one, "train/loss");
    EXPECT_GT(rounding, 1e-5) << "a bound that means something";
    EXPECT_LT(distance(one, two, "train/loss"), 2 * rounding) << precision;
  }
}

// Two ranks with a micro-batch each compute what one rank does with two micro-batches in turn, and a + b = b + a.
TEST_P(RankMatrix, EqualsAccumulationOnOneRankBitForBit) {
  for (const std::string precision : {"bf16", "fp16", "fp32"}) {
    const std::vector<std::string> settings{"precision=" + precision, "parallel.sync_bn=false"};
    std::vector<std::string> accumulating = settings;
    accumulating.push_back("train.gradient_accumulation_steps=2");
    const std::string two = run(2, settings, "two_" + precision), one = run(1, accumulating, "one_" + precision);
    EXPECT_EQ(timeless_metrics(two + "/metrics.jsonl"), timeless_metrics(one + "/metrics.jsonl")) << precision;
  }
}

const char *kGpt2 = "", *kLlama = ", position: rotary, norm: rmsnorm, activation: swiglu, tie_embeddings: false";

/// LoRA beside a pretrained model, which ranks share out.
class AdapterOnRanks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, AdapterOnRanks, ::testing::Values(kGpt2, kLlama),
                         [](const auto& entry) { return std::string(entry.param == kGpt2 ? "Gpt2" : "Llama"); });

TEST_P(AdapterOnRanks, MatchesOneRankIn64Bits) {
  const TemporaryFolder folder;
  const Network network{
      .name = "lora",
      .job =
          std::string("model: {type: gpt, config: {n_layer: 3, n_head: 2, n_embd: 32, block_size: 16, dropout: 0.0") +
          GetParam() +
          "}}\ndata: {train: {format: synthetic, samples: 59, vocab_size: 64}}\n"
          "optimizer: {type: adamw, lr: 1e-2}\n"};
  const std::string job = write_job(folder, network);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base", "--set", "train.max_steps=2"}).exit_code, 0);
  const auto run = [&](int world, const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(),
                    {"model.pretrained=" + folder / "base", "model.adapter.type=lora", "model.adapter.rank=4"});
    const Result result = ranks(world, job, folder / name, set(settings));
    EXPECT_EQ(result.exit_code, 0) << name << result.err;
    return folder / name;
  };
  const std::string one = run(1, "one", {});
  const std::string shard = "parallel.shard=parameters", recompute = "train.activation_checkpointing=";
  expect_same_training(one, run(2, "two", {shard, "train.gradient_accumulation_steps=2", recompute + "selective"}));
  expect_same_training(one, run(3, "three", {shard}));
  expect_same_training(one, run(4, "four", {shard, recompute + "block"}));
}

}  // namespace
}  // namespace gputrain::testing_support
