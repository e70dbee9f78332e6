// train.offload: a run whose activations and optimizer state wait in the host's memory equals one without, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "support/checkpoints.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Settings = std::vector<std::string>;

const Settings kBlocks{"train.activation_checkpointing=block"},
    kOffload{"train.offload.activations=true", "train.offload.optimizer=true"};

Settings joined(Settings first, const Settings& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Settings arguments_of(const Settings& settings) {
  Settings arguments;
  for (const std::string& set : settings) arguments.insert(arguments.end(), {"--set", set});
  return arguments;
}

struct Case {
  std::string name;
  int ranks = 1;
  Settings settings;

  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name; }
};

class Offloading : public ::testing::TestWithParam<Case> {
 protected:
  std::string write_job() const {
    return write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\neval: {interval: 10}\n",
                         "{max_steps: 20, global_batch_size: 8, micro_batch_size: 2}");
  }

  void train(const std::string& job, const std::string& name, const Settings& settings) const {
    const Result result = ranks(GetParam().ranks, job, folder_ / name,
                                arguments_of(joined(joined({"model.config.n_layer=4"}, kBlocks), settings)));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  void expect_equal_runs(const std::string& a, const std::string& b) const {
    EXPECT_THAT(differing_tensors(folder_ / a, folder_ / b), IsEmpty());
    EXPECT_EQ(read_file(folder_ / (a + "/model.safetensors")), read_file(folder_ / (b + "/model.safetensors")));
    EXPECT_EQ(timeless_metrics(folder_ / (a + "/metrics.jsonl")), timeless_metrics(folder_ / (b + "/metrics.jsonl")));
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(
    Of, Offloading,
    ::testing::Values(
        Case{"OneRankWithDropout", 1, {"model.config.dropout=0.1"}},
        Case{"Bf16WithAnAverage", 1, {"precision=bf16", "train.ema.decay=0.9"}},
        Case{"Bf16Weights", 1, {"precision=bf16", "optimizer={type: adamw, lr: 1e-3, master: bf16, averages: bf16}"}},
        Case{"Momentum", 1, {"optimizer={type: sgd, lr: 0.1, momentum: 0.9}"}},
        Case{"TwoRanksWithDropout", 2, {"model.config.dropout=0.1"}},
        Case{"SharedParameters", 2, {"parallel.shard=parameters", "precision=bf16"}},
        Case{"SharedState", 2, {"parallel.shard=optimizer", "optimizer={type: lion, lr: 1e-3}"}},
        Case{"Stages", 2, {"parallel.pipeline=2"}}),
    [](const auto& entry) { return entry.param.name; });

TEST_P(Offloading, ChangesNoBitOfARunAndMayBeginWhenItResumes) {
  const std::string job = write_job();
  train(job, "plain", GetParam().settings);
  train(job, "offloaded", joined(GetParam().settings, kOffload));
  expect_equal_runs("plain", "offloaded");

  copy_without_the_end(folder_ / "plain", folder_ / "resumed");
  train(job, "resumed", joined(GetParam().settings, kOffload));
  expect_equal_runs("plain", "resumed");
}

TEST(Offload, ChangesNoBitOfAnAdapter) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\neval: {interval: null}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base", "--set", "train.max_steps=2"}).exit_code, 0);
  const auto train = [&](const std::string& name, const Settings& more) {
    Settings arguments{"run", job, "--output-dir", folder / name};
    const Settings adapter{"model.pretrained=" + (folder / "base"), "model.adapter.type=lora", "model.adapter.rank=4",
                           "model.adapter.dropout=0.1"};
    const Result result = gputrain(joined(arguments, arguments_of(joined(joined(adapter, kBlocks), more))));
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  train("plain", {});
  train("offloaded", kOffload);
  EXPECT_THAT(differing_tensors(folder / "plain", folder / "offloaded"), IsEmpty());
  EXPECT_EQ(timeless_metrics(folder / "plain/metrics.jsonl"), timeless_metrics(folder / "offloaded/metrics.jsonl"));
}

class OffloadPage : public ::testing::Test {
 protected:
  Result run(const Settings& settings, const Settings& more = {}) const {
    return gputrain(joined(joined({"run", job_, "--output-dir", folder_ / "run", "--set", "precision=fp32", "--set",
                                   "model.config.n_layer=6", "--set", "model.config.n_embd=512"},
                                  more),
                           arguments_of(settings)));
  }
  nlohmann::json memory_of(const Settings& settings) const {
    const Result result = run(settings, {"--dry-run", "--world-size", "1", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["memory"];
  }

  TemporaryFolder folder_;
  const std::string job_ = write_gpt_job(folder_, "", "{max_steps: 2, global_batch_size: 96}");
};

TEST_F(OffloadPage, ForetellsBytesOfTheDeviceAndOfTheHost) {
  const auto plain = memory_of(kBlocks), offloaded = memory_of(joined(kBlocks, kOffload));
  EXPECT_EQ(plain["optimizer_on_host"], 0);
  EXPECT_EQ(plain["activations_on_host"], 0);
  EXPECT_EQ(offloaded["optimizer_on_host"], plain["optimizer"]);
  EXPECT_EQ(offloaded["optimizer"], 2 * 2 * (int64_t{1} << 22) * 4);  // two averages, parts, elements, bytes
  constexpr int64_t kInput = 96 * 16 * 512 * 4;                       // samples, tokens, channels, bytes
  EXPECT_EQ(offloaded["activations_on_host"], 6 * kInput);
  const auto less = plain["activations"].get<int64_t>() - offloaded["activations"].get<int64_t>();
  EXPECT_EQ(less, 4 * kInput) << "two of six stay: one computes, one is on its way";
  EXPECT_LT(offloaded["total"], plain["total"]);
}

TEST_F(OffloadPage, ProposesItWhereMemoryIsShort) {
  const int64_t total = memory_of(kBlocks)["total"];
  const Result refused = run(
      kBlocks, {"--dry-run", "--world-size", "1", "--device-memory", std::to_string((total >> 20) * 9 / 10) + "MiB"});
  EXPECT_EQ(refused.exit_code, 6) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--set train.offload.activations=true "),
                                 HasSubstr("--set train.offload.optimizer=true ")));
  EXPECT_LT(refused.err.find("train.micro_batch_size="), refused.err.find("train.offload."));
  EXPECT_LT(refused.err.find("train.offload."), refused.err.find("precision=bf16"));
}

TEST_F(OffloadPage, RefusesWhatHasNothingToOffload) {
  const Result without_blocks = run({"train.offload.activations=true"});
  EXPECT_EQ(without_blocks.exit_code, 2);
  EXPECT_THAT(without_blocks.err,
              AllOf(HasSubstr("train.offload.activations"), HasSubstr("train.activation_checkpointing: block")));
  const Result in_one = run({"train.offload.optimizer=true", "optimizer={type: adamw8bit, lr: 1e-3}"});
  EXPECT_EQ(in_one.exit_code, 2);
  EXPECT_THAT(in_one.err, HasSubstr("adamw8bit does not update its state in parts"));
}

TEST_F(OffloadPage, SaysThatACpuSavesNothing) {
  const Result result = run(joined(joined({"model.config.n_embd=32"}, kBlocks), kOffload));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("train.offload.optimizer saves no memory on a CPU: what waits is copied within"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("and on the host "), HasSubstr("inputs of blocks on the host")));
}

}  // namespace
}  // namespace gputrain::testing_support
