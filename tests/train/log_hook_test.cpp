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
  const auto folder = std::filesystem::path(testing::TempDir()) / ("log_hook_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  recorder_ =
      std::make_unique<monitor::Recorder>(std::vector<std::string>{"jsonl"}, monitor::SinkRequest{folder, console_});
  recorder_->truncate(0, 0);
  plan_.log.steps = 2;
  const auto take_half_a_second = [&](LogHook& hook, double loss) {
    progress_.train_seconds += 0.5;
    progress_.usage.samples += 8;
    take_step(hook, loss);
  };
  LogHook before = hook(), after = hook();
  for (const double loss : {9, 9, 1}) take_half_a_second(before, loss);
  EXPECT_DOUBLE_EQ(before.samples_per_second(), 16);
  after.restore(before.state());
  take_half_a_second(after, 2);
  nlohmann::json last;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) last = nlohmann::json::parse(line);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(last["step"], 4);
  EXPECT_EQ(last["epoch"], 0.4);
  EXPECT_EQ(last["train/loss"], 1.5);
  EXPECT_EQ(last["train/samples_per_second"], 16);
}

}  // namespace
}  // namespace gputrain::train
