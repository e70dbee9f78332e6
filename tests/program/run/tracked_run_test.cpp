// What trackers get of a run: histograms, texts, metrics.csv, the loss scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/python_reference.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::gputrain::testing::run_reference;
using nlohmann::json;
using ::testing::HasSubstr;

class TrackedJob : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("tensorboard");
    GPUTRAIN_NEED_REFERENCE("safetensors");
  }

  Result run(const std::string& name, const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> arguments{"run", job_, "--output-dir", folder_ / name};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return gputrain(arguments);
  }
  /// What a script of tests/monitor finds in a file or folder of a run.
  json found(const std::string& script, const std::string& path) const {
    EXPECT_TRUE(run_reference("monitor/" + script, {folder_ / path, folder_ / "found.json"}));
    return json::parse(read_file(folder_ / "found.json"));
  }
  bool shows_what_is_there(const std::string& name, const std::string& step, const std::string& error) const {
    return run_reference("program/run/histograms_reference.py", {folder_ / name, step, error});
  }
  static std::vector<int64_t> steps_of(const json& points) {
    std::vector<int64_t> steps;
    for (const json& point : points) steps.push_back(point.is_array() ? point[0] : point["step"]);
    return steps;
  }

  const TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_,
                    "log: {interval: 1, tensorboard: true, csv: true, histograms: 10}\ncheckpoint: {interval: 10}\n"
                    "eval: {interval: 10, sample: {prompt: the, max_new_tokens: 5, interval: 10}}\n");
};

// The gradient is clipped, in fp64 in place.
TEST_F(TrackedJob, ShowsWeightsAndGradientsAsTheyAre) {
  const Result result = run("run", {"train.max_grad_norm=0.05"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(shows_what_is_there("run", "20", "1e-6"));
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_THAT(steps_of(shown["texts"]["sample"]), ::testing::ElementsAre(10, 20));
  const std::string last = shown["texts"]["sample"][1][1];
  EXPECT_EQ(last.substr(0, 7), "    the");
  EXPECT_THAT(result.out, HasSubstr(last.substr(4, last.find('\n', 4) - 4)));
}

TEST_F(TrackedJob, ShowsTheSameWhereRanksShareTheGradient) {
  ASSERT_EQ(run("one").exit_code, 0);
  const json one = found("tensorboard_reference.py", "one/tb")["histograms"];
  for (const char* shard : {"none", "optimizer", "gradients"}) {
    const std::string name = std::string("of2-") + shard;
    const Result result = ranks(2, job_, folder_ / name, {"--set", std::string("parallel.shard=") + shard});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json two = found("tensorboard_reference.py", name + "/tb")["histograms"];
    ASSERT_EQ(two.size(), one.size());
    for (const auto& [tag, points] : one.items()) {
      ASSERT_EQ(steps_of(two[tag]), steps_of(points));
      for (size_t i = 0; i < points.size(); ++i) {
        EXPECT_EQ(two[tag][i]["num"], points[i]["num"]) << shard << " " << tag;
        for (const char* number : {"min", "max", "sum", "sum_squares"})
          EXPECT_NEAR(two[tag][i][number], points[i][number].get<double>(), 1e-6) << shard << " " << tag;
      }
    }
  }
}

TEST_F(TrackedJob, UndoesTheLossScaleAndTellsIt) {
  const Result result = run("run", {"precision=fp16", "log.wandb={}"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(shows_what_is_there("run", "20", "1e-5"));
  const auto scales = values(folder_ / "run/metrics.jsonl", "train/loss_scale");
  EXPECT_EQ(scales.size(), 20U);
  EXPECT_EQ(std::exp2(std::round(std::log2(scales.back()))), scales.back());
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_EQ(shown["scalars"]["train/loss_scale"].back(), json({20, scales.back()}));
}

TEST_F(TrackedJob, LeavesOutWhatIsFrozen) {
  ASSERT_EQ(run("run", {"model.freeze=[\"*.h.*\"]"}).exit_code, 0);
  EXPECT_TRUE(shows_what_is_there("run", "20", "1e-6"));
  const json shown = found("tensorboard_reference.py", "run/tb")["histograms"];
  EXPECT_TRUE(shown.contains("gradients/transformer.wpe.weight"));
  for (const auto& [tag, points] : shown.items()) EXPECT_EQ(tag.find(".h."), std::string::npos) << tag;
}

TEST_F(TrackedJob, IsShownOnceAfterAResume) {
  ASSERT_EQ(run("whole").exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  ASSERT_EQ(run("cut").exit_code, 0);
  EXPECT_TRUE(shows_what_is_there("cut", "20", "1e-6"));
  const json whole = found("tensorboard_reference.py", "whole/tb"), cut = found("tensorboard_reference.py", "cut/tb");
  EXPECT_EQ(cut["histograms"], whole["histograms"]);
  EXPECT_EQ(cut["texts"]["sample"], whole["texts"]["sample"]);
  const json rows = found("csv_reference.py", "cut/metrics.csv");
  std::vector<std::string> losses, expected;
  for (const json& row : rows)
    if (row["kind"] == "train") losses.push_back(row["train/loss"]);
  for (const json& row : found("csv_reference.py", "whole/metrics.csv"))
    if (row["kind"] == "train") expected.push_back(row["train/loss"]);
  EXPECT_EQ(losses.size(), 20U);
  EXPECT_EQ(losses, expected);

  // Nothing is left to train: nothing is shown twice.
  ASSERT_EQ(run("cut").exit_code, 0);
  EXPECT_EQ(found("tensorboard_reference.py", "cut/tb")["texts"]["sample"], whole["texts"]["sample"]);
}

TEST_F(TrackedJob, TellsWhereTheTimeHasGone) {
  ASSERT_EQ(run("run").exit_code, 0);
  const std::string metrics = folder_ / "run/metrics.jsonl";
  for (const char* part : {"train", "eval", "save"}) {
    const auto seconds = values(metrics, "time/" + std::string(part) + "_seconds_total");
    EXPECT_TRUE(std::ranges::is_sorted(seconds));
    EXPECT_GT(seconds.back(), 0) << part;
  }
  const std::string report = read_file(folder_ / "run/report.html");
  for (const char* part : {"steps", "evaluations", "saves"})
    EXPECT_THAT(report, HasSubstr("[\"" + std::string(part) + "\","));
}

}  // namespace
}  // namespace gputrain::testing_support
