// Averages of the weights: what a run evaluates and writes, against the weights that it saved after each step.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "support/endless_run.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int kAveragedSteps = 8;

/// A network with running statistics, in fp64, that saves every step.
std::string write_averaged_job(const TemporaryFolder& folder, const std::string& average,
                               const std::string& optimizer = "{type: sgd, lr: 0.05, momentum: 0.9}") {
  return folder.write("job.yaml",
                      "schema: 1\ndevice: cpu\nprecision: fp64\n"
                      "model: {type: resnet18, config: {stem: cifar, width: 4}}\n"
                      "data: {train: {format: synthetic, samples: 24}, val: {format: synthetic, samples: 16}, "
                      "image: {size: 8}}\n"
                      "optimizer: " +
                          optimizer +
                          "\n"
                          "parallel: {sync_bn: true}\n"
                          "checkpoint: {interval: 1, keep_last: 100}\n"
                          "eval: {interval: 4}\nlog: {interval: 1}\n" +
                          fmt::format("train: {{max_steps: {}, global_batch_size: 8, {}}}\n", kAveragedSteps, average));
}

Tensors tensors_in(const std::filesystem::path& file) {
  const checkpoint::SafetensorsFile weights(file);
  Tensors tensors;
  for (const std::string& name : weights.names()) tensors[name] = weights.tensor(name).clone();
  return tensors;
}

/// The weights that the run had after a step, from its checkpoint.
Tensors saved_weights(const std::string& run, int64_t step) {
  return tensors_in(std::filesystem::path(run) / "ckpt" / fmt::format("step-{:08}", step) / "model.safetensors");
}

double distance(const Tensors& some, const Tensors& others) {
  double most = some.size() == others.size() ? 0 : 1e9;
  for (const auto& [name, tensor] : some) {
    if (at::isFloatingType(tensor.scalar_type()))
      most = std::max(most, (tensor - others.at(name)).abs().max().item<double>());
  }
  return most;
}

/// The mean of the saved weights by these shares of the steps, from the first on.
Tensors mean_of(const std::string& run, const std::vector<double>& shares) {
  Tensors mean;
  for (size_t i = 0; i < shares.size(); ++i) {
    for (const auto& [name, tensor] : saved_weights(run, static_cast<int64_t>(i) + 1)) {
      if (!at::isFloatingType(tensor.scalar_type())) continue;
      const auto [at, is_new] = mean.try_emplace(name, at::zeros_like(tensor));
      at->second += tensor * shares[i];
    }
  }
  return mean;
}

void expect_written(const std::string& run, const Tensors& expected) {
  Tensors written = tensors_in(std::filesystem::path(run) / "model.safetensors");
  std::erase_if(written, [](const auto& named) { return !at::isFloatingType(named.second.scalar_type()); });
  EXPECT_LT(distance(written, expected), 1e-12);
  EXPECT_GT(distance(written, mean_of(run, {0, 0, 0, 0, 0, 0, 0, 1})), 1e-6) << "the average is no last step";
}

/// Shares of the steps in an exponential average that begins at the weights after the first one.
std::vector<double> shares_of_ema(const std::function<double(int step)>& decay) {
  std::vector<double> shares{1};
  for (int step = 1; step < kAveragedSteps; ++step) {
    for (double& share : shares) share *= decay(step);
    shares.push_back(1 - decay(step));
  }
  return shares;
}

TEST(WeightAverage, IsExponentialMeanOfTheStepsWeights) {
  const TemporaryFolder folder;
  const std::string job = write_averaged_job(folder, "ema: {decay: 0.6, warmup: false}"), run = folder / "run";
  const Result result = gputrain({"run", job, "--output-dir", run});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ema 0.6"));
  expect_written(run, mean_of(run, shares_of_ema([](int) { return 0.6; })));
  const std::string warm = folder / "warm";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", warm, "--set", "train.ema.warmup=true"}).exit_code, 0);
  expect_written(warm,
                 mean_of(warm, shares_of_ema([](int step) { return std::min(0.6, (1.0 + step) / (10 + step)); })));
}

TEST(WeightAverage, IsMeanOfPointsFromStartOn) {
  const TemporaryFolder folder;
  const std::string job = write_averaged_job(folder, "swa: {start: 50%, interval: 2}"), run = folder / "run";
  const Result result = gputrain({"run", job, "--output-dir", run});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_written(run, mean_of(run, {0, 0, 0, 1.0 / 3, 0, 1.0 / 3, 0, 1.0 / 3}));
}

/// The loss that `gputrain eval` measures with weights.
double loss_of(const std::string& job, const std::string& weights) {
  const Result result = gputrain({"eval", job, "--weights", weights, "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out).at("val/loss");
}

class EachAverage : public ::testing::TestWithParam<const char*> {
 protected:
  std::string write_job(const TemporaryFolder& folder) const {
    if (GetParam() == std::string("ema")) return write_averaged_job(folder, "ema: {decay: 0.7}");
    return write_averaged_job(folder, "max_grad_norm: 1", "{type: schedule_free_adamw, lr: 0.01}");
  }
};
INSTANTIATE_TEST_SUITE_P(Averages, EachAverage, ::testing::Values("ema", "schedule_free"),
                         [](const auto& entry) { return std::string(entry.param); });

TEST_P(EachAverage, IsWhatIsEvaluatedHereAndLater) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const double logged = summary(run)["metrics"]["val/loss"];
  EXPECT_NEAR(loss_of(job, run), logged, 1e-12);
  EXPECT_NEAR(loss_of(job, run + fmt::format("/ckpt/step-{:08}", kAveragedSteps)), logged, 1e-12);
}

TEST_P(EachAverage, IsSameAfterResumeAndOnRanksThatShareIt) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder), whole = folder / "whole";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", whole}).exit_code, 0);
  const std::string resumed = folder / "resumed";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", resumed, "--set", "train.max_steps=5"}).exit_code, 0);
  const Result more = gputrain({"run", job, "--output-dir", resumed, "--accept"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(read_file(resumed + "/model.safetensors"), read_file(whole + "/model.safetensors"));
  for (const char* shard : {"optimizer", "parameters"}) {
    const std::string shared = folder / shard;
    const Result result = ranks(2, job, shared, {"--set", std::string("parallel.shard=") + shard});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Tensors expected = tensors_in(whole + "/model.safetensors");
    EXPECT_LT(distance(tensors_in(shared + "/model.safetensors"), expected), 1e-10) << shard;
  }
}

// The average of a layer that is trained late begins there.
TEST_P(EachAverage, GoesOnWithLayersThatAreTrainedLate) {
  const TemporaryFolder folder;
  const std::string job = write_job(folder), once = folder / "once", twice = folder / "twice";
  const auto run_until = [&](const std::string& run, int steps, const std::string& frozen) {
    const Result result =
        gputrain({"run", job, "--output-dir", run, "--accept", "--set", fmt::format("train.max_steps={}", steps),
                  "--set", "model.freeze=[" + frozen + "]"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  for (const std::string& run : {once, twice}) run_until(run, 3, "conv1.*");
  run_until(twice, 5, "");
  for (const std::string& run : {once, twice}) run_until(run, kAveragedSteps, "");
  EXPECT_EQ(distance(tensors_in(once + "/model.safetensors"), tensors_in(twice + "/model.safetensors")), 0);
}

TEST(WeightAverage, OfAnotherKindIsRefusedWhenARunGoesOn) {
  const TemporaryFolder folder;
  const std::string job = write_averaged_job(folder, "ema: {decay: 0.7}"), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run, "--set", "train.max_steps=3"}).exit_code, 0);
  const auto refused = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> command{"run", job, "--output-dir", run, "--accept"};
    for (const std::string& set : sets) command.insert(command.end(), {"--set", set});
    const Result result = gputrain(command);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"train.ema=null"}), HasSubstr("made with train.ema, and the job has no average"));
  EXPECT_THAT(refused({"train.ema=null", "train.swa={interval: 1}"}), HasSubstr("and the job has train.swa"));
}

// Weights are frozen, and the precision is another, than when they were averaged.
TEST(WeightAverage, IsReadByAnotherJob) {
  const TemporaryFolder folder;
  const std::string job = write_averaged_job(folder, "ema: {decay: 0.7}"), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const double logged = summary(run)["metrics"]["val/loss"];
  const std::string newest = run + fmt::format("/ckpt/step-{:08}", kAveragedSteps);
  const auto loss_with = [&](const std::string& weights, const std::string& set) {
    const Result result = gputrain({"eval", job, "--weights", weights, "--json", "--set", set});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("val/loss").get<double>();
  };
  EXPECT_NEAR(loss_with(newest, "model.freeze=['conv1.*', 'layer1.*']"), logged, 1e-12);
  EXPECT_NEAR(loss_with(newest, "precision=fp32"), logged, 1e-4);
  EXPECT_NEAR(loss_with(newest + "/model.safetensors", "seed=1"), logged, 1e-12);
}

TEST(WeightAverage, IsNotThatOfAnAverage) {
  const TemporaryFolder folder;
  const std::string job = write_averaged_job(folder, "ema: {decay: 0.7}", "{type: schedule_free_adamw}");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("schedule_free_adamw has an average of the weights already"));
}

TEST(WeightAverage, IsOneOfTwo) {
  const TemporaryFolder folder;
  const Result result =
      gputrain({"run", write_averaged_job(folder, "ema: {}, swa: {}"), "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("one of the two"));
}

}  // namespace
}  // namespace gputrain::testing_support
