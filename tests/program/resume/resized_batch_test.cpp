// A run that goes on with another global batch: epochs, intervals and the learning rate go by samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"
#include "support/endless_run.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResizedBatch : public ::testing::Test {
 protected:
  /// Trains a perceptron on 37 samples an epoch, for four epochs unless the settings say so.
  Result train(int global_batch, const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> words{"run",
                                   job_,
                                   "--output-dir",
                                   run_,
                                   "--accept",
                                   "--set",
                                   "train.global_batch_size=" + std::to_string(global_batch)};
    for (const auto& setting : settings) words.insert(words.end(), {"--set", setting});
    const Result result = gputrain(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  nlohmann::json audit() const {
    const Result result = gputrain({"data", "audit", run_, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.out;
    return nlohmann::json::parse(result.out);
  }
  std::filesystem::path checkpoint_of(int64_t step) const {
    return std::filesystem::path(run_) / "ckpt" / checkpoint::folder_name(step, 1);
  }
  /// The steps of the run's lines of this kind.
  std::vector<int64_t> steps_of(const std::string& file, const std::string& kind) const {
    std::vector<int64_t> steps;
    std::ifstream lines(run_ + "/" + file);
    for (std::string line; std::getline(lines, line);) {
      const auto object = nlohmann::json::parse(line);
      if (object["kind"] == kind) steps.push_back(object["step"]);
    }
    return steps;
  }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  const std::string job_ = folder_.write("job.yaml", R"(
schema: 1
device: cpu
model: {type: mlp, config: {hidden: [8]}}
data: {train: {format: synthetic, samples: 37}, val: {format: synthetic, samples: 8}, image: {size: 4}}
train: {max_epochs: 4}
optimizer: {type: sgd, lr: 0.08}
lr_scheduler: {type: linear}
eval: {interval: 1ep}
checkpoint: {interval: 1ep, keep_last: 99}
log: {interval: 1}
)");
};

TEST_F(ResizedBatch, TrainsWhatIsLeftOfItsEpochs) {
  train(8, {"train.max_epochs=2"});
  const Result more = train(16);
  EXPECT_THAT(more.out, HasSubstr("done    16/16"));  // 2 x 5 steps and 2 x 3
  const auto found = audit();
  EXPECT_EQ(found["epochs"], 4);
  EXPECT_EQ(found["data"]["samples"], 4 * 37);
  EXPECT_THAT(steps_of("metrics.jsonl", "eval"), ElementsAre(5, 10, 13, 16));
  EXPECT_THAT(steps_of("ledger.jsonl", "checkpoint"), ElementsAre(5, 10, 13, 16));
  EXPECT_EQ(summary(run_)["epoch"], 4);
}

TEST_F(ResizedBatch, LeavesLearningRateAtItsShareOfTraining) {
  train(8, {"train.max_steps=10"});
  train(16);
  const auto rates = values(run_ + "/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 16U);
  EXPECT_NEAR(rates[10], 0.04, 1e-12);  // half of the training is left
  EXPECT_NEAR(rates[15], 0.08 / 12, 1e-12);
}

TEST_F(ResizedBatch, GoesOnWhereAnEpochStood) {
  train(8, {"train.max_steps=4"});  // 0.8 epochs
  train(4, {"train.max_steps=5"});  // 0.9: five samples are left, two steps
  train(4, {"train.max_steps=6"});
  train(4, {"train.max_steps=9"});
  train(16);
  const auto rates = values(run_ + "/metrics.jsonl", "train/lr");
  ASSERT_EQ(rates.size(), 9U + 2 + 2 * 3);
  EXPECT_NEAR(rates[9], 0.08 * (1 - 1.3 / 4), 1e-12);
  EXPECT_NEAR(rates[10], 0.08 * (1 - 1.65 / 4), 1e-12);
  EXPECT_NEAR(rates[11], 0.08 * (1 - 2.0 / 4), 1e-12);
  std::ifstream lines(run_ + "/metrics.jsonl");
  double before = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["kind"] != "train") continue;
    EXPECT_GT(object["epoch"], before) << line;
    before = object["epoch"];
  }
  EXPECT_EQ(audit()["data"]["samples"], 4 * 37);
}

TEST_F(ResizedBatch, FinishesEpochBegunWithOtherSizes) {
  const auto stop_at = [](int step) { return std::vector{"train.max_steps=" + std::to_string(step)}; };
  train(8, stop_at(7));    // one epoch and 16 samples
  train(5, stop_at(9));    // 26
  train(16, stop_at(10));  // 37
  EXPECT_EQ(audit()["data"]["samples"], 2 * 37);
  train(4);
  const auto found = audit();
  EXPECT_EQ(found["epochs"], 4);
  EXPECT_EQ(found["data"]["samples"], 4 * 37);
  EXPECT_EQ(summary(run_)["step"], 10 + 2 * 10);
}

TEST_F(ResizedBatch, DropsRestOfAnEpochWithoutFullStep) {
  train(8, {"train.max_steps=3", "data.last=drop"});
  train(16, {"data.last=drop"});
  const auto found = audit();
  EXPECT_EQ(found["epochs"], 4);
  EXPECT_EQ(found["data"]["samples"], 3 * 8 + 3 * 32);
  EXPECT_THAT(gputrain({"data", "audit", run_}).out, HasSubstr("used once per epoch or dropped at its end"));
}

TEST_F(ResizedBatch, KeepsCheckpointsOfItsEpochsForGood) {
  const std::vector<std::string> each_epoch{"checkpoint.keep_last=1", "checkpoint.keep_best=0",
                                            "checkpoint.keep_every=1ep", "checkpoint.interval=1"};
  auto first = each_epoch;
  first.emplace_back("train.max_epochs=2");
  train(8, first);
  train(16, each_epoch);
  for (const int64_t step : {5, 10, 13, 16}) EXPECT_TRUE(exists(checkpoint_of(step))) << step;
  for (const int64_t step : {3, 9, 12, 15}) EXPECT_FALSE(exists(checkpoint_of(step))) << step;
}

TEST_F(ResizedBatch, KeepsTheAutomaticLogIntervalWhenExtended) {
  EXPECT_THAT(train(8, {"log.interval=auto"}).out, HasSubstr("  log every 2\n"));  // 20 steps
  EXPECT_THAT(train(8, {"log.interval=auto", "train.max_epochs=20"}).out, HasSubstr("  log every 2\n"));
  const auto steps = steps_of("metrics.jsonl", "train");
  ASSERT_EQ(steps.size(), 50U);
  EXPECT_EQ(steps[0], 2);
  EXPECT_EQ(steps[49], 100);
}

TEST_F(ResizedBatch, CountsMaxStepsAsSteps) {
  train(8, {"train.max_epochs=null", "train.max_steps=10"});
  EXPECT_THAT(train(16, {"train.max_epochs=null", "train.max_steps=12"}).out, HasSubstr("done    12/12"));
  EXPECT_EQ(audit()["data"]["samples"], 2 * 37 + 32);
}

/// Changes the newest checkpoint's state.
void rewrite_state(const std::string& run, const std::function<void(nlohmann::json&)>& change) {
  const std::filesystem::path file = run + "/ckpt/latest/state.json", index = run + "/ckpt/latest/manifest.json";
  auto state = nlohmann::json::parse(read_file(file));
  change(state);
  const std::string text = state.dump(2) + "\n";
  std::ofstream(file) << text;
  checkpoint::Sealer sealer;
  sealer.add(text.data(), text.size());
  auto manifest = checkpoint::parse_manifest(read_file(index), index);
  manifest.files.at("state.json").seal = sealer.seal();
  std::ofstream(index) << checkpoint::to_json(manifest);
}

TEST_F(ResizedBatch, RefusesPlaceOutsideTheData) {
  train(8, {"train.max_steps=7"});
  std::filesystem::remove_all(run_ + "/ckpt/step-00000005");
  rewrite_state(run_, [](nlohmann::json& state) { state["position"]["epoch"] = -1; });
  const Result result = gputrain({"run", job_, "--output-dir", run_, "--accept", "--set", "train.global_batch_size=8"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("a place outside the data"));
}

}  // namespace
}  // namespace gputrain::testing_support
