#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

class LogHookTest : public ::testing::Test {
 protected:
  LogHook hook() { return {{*recorder_, plan_}, groups_, at::kCPU}; }
  void take_step(LogHook& hook, double loss) {
    ++progress_.step;
    hook.after_step(
        progress_,
        {.loss_sum = at::full({}, loss, at::kDouble), .gradient_norm = at::full({}, 1.0), .weight = 1, .samples = 1},
        /*asked=*/false);
  }
  void take_half_a_second(LogHook& hook, double loss) {
    progress_.train_seconds += 0.5;
    progress_.usage.samples += 8;
    take_step(hook, loss);
  }

  /// Lines go to a file from here on, one for two steps.
  void write_file() {
    std::filesystem::create_directory(folder_);
    recorder_ =
        std::make_unique<monitor::Recorder>(std::vector<std::string>{"jsonl"}, monitor::SinkRequest{folder_, console_});
    recorder_->truncate(0, 0);
    plan_.log.steps = 2;
  }
  nlohmann::json newest_line() const {
    nlohmann::json last;
    std::ifstream file(folder_ / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) last = nlohmann::json::parse(line);
    return last;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("log_hook_" + std::to_string(::getpid()));

  monitor::Console console_{{.enabled = false}};
  std::unique_ptr<monitor::Recorder> recorder_ = std::make_unique<monitor::Recorder>();
  Plan plan_{.steps_per_epoch = 10, .total_steps = 10};
  comm::ProcessGroups groups_;
  Progress progress_;
};

TEST_F(LogHookTest, ContinuesIntervalWithNonFiniteLoss) {
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    plan_.log.steps = 4;
    progress_ = {};
    LogHook before = hook(), after = hook();
    take_step(before, 1);
    take_step(before, loss);
    after.restore(nlohmann::json::parse(before.state().dump()));
    take_step(after, 1);
    take_step(after, 1);
    EXPECT_FALSE(std::isfinite(progress_.metrics.at("train/loss")));
    for (int i = 0; i < 4; ++i) take_step(after, 3);
    EXPECT_EQ(progress_.metrics.at("train/loss"), 3);
  }
}

TEST_F(LogHookTest, MeasuresSinceLastLineAcrossResume) {
  write_file();
  LogHook before = hook(), after = hook();
  for (const double loss : {9, 9, 1}) take_half_a_second(before, loss);
  EXPECT_DOUBLE_EQ(before.samples_per_second(), 16);
  after.restore(before.state());
  take_half_a_second(after, 2);
  const nlohmann::json last = newest_line();
  EXPECT_EQ(last["step"], 4);
  EXPECT_EQ(last["epoch"], 0.4);
  EXPECT_EQ(last["train/loss"], 1.5);
  EXPECT_EQ(last["train/samples_per_second"], 16);
}

TEST_F(LogHookTest, TellsTheShareOfThePeakRateWhereItIsKnown) {
  write_file();
  LogHook unknown = hook(), known = hook();
  unknown.set_model_flops({.per_sample = 3e9});
  for (int i = 0; i < 2; ++i) take_half_a_second(unknown, 1);
  EXPECT_FALSE(newest_line().contains("train/mfu"));
  known.set_model_flops({.per_sample = 3e9, .peak_per_second = 96e9});
  known.restore(unknown.state());
  for (int i = 0; i < 2; ++i) take_half_a_second(known, 1);
  EXPECT_EQ(newest_line()["train/mfu"], 0.5);  // 16 samples a second
}

TEST_F(LogHookTest, TellsWhereTheTimeHasGone) {
  write_file();
  LogHook lines = hook();
  progress_.eval_seconds = 7;
  progress_.save_seconds = 0.25;
  for (int i = 0; i < 2; ++i) take_half_a_second(lines, 1);
  EXPECT_EQ(newest_line()["time/train_seconds_total"], 1);
  EXPECT_EQ(newest_line()["time/eval_seconds_total"], 7);
  EXPECT_EQ(newest_line()["time/save_seconds_total"], 0.25);
}

}  // namespace
}  // namespace gputrain::train
