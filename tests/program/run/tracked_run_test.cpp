// What trackers get of a run: texts, the loss scale, where the time has gone.
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
  static std::vector<int64_t> steps_of(const json& points) {
    std::vector<int64_t> steps;
    for (const json& point : points) steps.push_back(point.is_array() ? point[0] : point["step"]);
    return steps;
  }

  const TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_,
                    "log: {interval: 1, tensorboard: true}\ncheckpoint: {interval: 10}\n"
                    "eval: {interval: 10, sample: {prompt: the, max_new_tokens: 5, interval: 10}}\n");
};

TEST_F(TrackedJob, ShowsTheTextsThatTheModelWrites) {
  const Result result = run("run");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_THAT(steps_of(shown["texts"]["sample"]), ::testing::ElementsAre(10, 20));
  const std::string last = shown["texts"]["sample"][1][1];
  EXPECT_EQ(last.substr(0, 7), "    the");
  EXPECT_THAT(result.out, HasSubstr(last.substr(4, last.find('\n', 4) - 4)));
}

TEST_F(TrackedJob, TellsTheLossScale) {
  const Result result = run("run", {"precision=fp16", "log.wandb={}"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto scales = values(folder_ / "run/metrics.jsonl", "train/loss_scale");
  EXPECT_EQ(scales.size(), 20U);
  EXPECT_EQ(std::exp2(std::round(std::log2(scales.back()))), scales.back());
  const json shown = found("tensorboard_reference.py", "run/tb");
  EXPECT_EQ(shown["scalars"]["train/loss_scale"].back(), json({20, scales.back()}));
}

TEST_F(TrackedJob, IsShownOnceAfterAResume) {
  ASSERT_EQ(run("whole").exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  ASSERT_EQ(run("cut").exit_code, 0);
  const json whole = found("tensorboard_reference.py", "whole/tb"), cut = found("tensorboard_reference.py", "cut/tb");
  EXPECT_EQ(cut["scalars"]["train/loss"].size(), 20U);
  EXPECT_EQ(cut["scalars"]["train/loss"], whole["scalars"]["train/loss"]);
  EXPECT_EQ(cut["texts"]["sample"], whole["texts"]["sample"]);

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
