#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

class LogHookTest : public ::testing::Test {
 protected:
  LogHook hook() { return {{console_, metrics_, plan_}, groups_, at::kCPU}; }
  void take_step(LogHook& hook, double loss) {
    ++progress_.step;
    hook.after_step(
        progress_,
        {.loss_sum = at::full({}, loss, at::kDouble), .gradient_norm = at::full({}, 1.0), .weight = 1, .samples = 1},
        /*asked=*/false);
  }

  monitor::Console console_{{.enabled = false}};
  monitor::MetricsFile metrics_;
  Plan plan_{.steps_per_epoch = 10, .total_steps = 10};
  comm::ProcessGroups groups_;
  Progress progress_;
};

TEST_F(LogHookTest, GoesOnFromACheckpointInsideAnIntervalWithALossThatIsNotFinite) {
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

}  // namespace
}  // namespace gputrain::train
