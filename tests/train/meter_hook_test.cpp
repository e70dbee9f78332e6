#include "gputrain/train/meter_hook.hpp"

#include <gtest/gtest.h>

namespace gputrain::train {
namespace {

TEST(MeterHook, TellsTheTimesOfAStepAndTheShareThatWaitsForData) {
  device::PhaseClock clock(at::kCPU);
  comm::ProcessGroups alone;
  monitor::Recorder recorder;
  const Plan plan{.steps_per_epoch = 10, .total_steps = 10};
  monitor::Board board;
  board.begin({.places = {"here"}});
  MeterHook hook({.clock = clock, .groups = alone, .reporting = {recorder, plan}, .board = board, .places = {"here"}});
  Progress progress;
  hook.after_step(progress, {}, /*requested=*/false);
  clock.add(device::Phase::load, 1);
  clock.add(device::Phase::forward, 3);
  hook.after_step(progress, {}, /*requested=*/true);
  const monitor::Metrics expected{
      {"time/load_seconds", 0.5}, {"time/forward_seconds", 1.5}, {"time/stall_share", 0.25}};
  EXPECT_EQ(hook.take_times(), expected);
  EXPECT_EQ(hook.take_times(), monitor::Metrics());
}

}  // namespace
}  // namespace gputrain::train
