#include "gputrain/optim/schedule.hpp"

#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

constexpr double kPeak = 0.3;

std::unique_ptr<Schedule> schedule_of(const std::string& yaml, int64_t total_steps) {
  const ScheduleContext context{.peak_lr = kPeak,
                                .total_steps = total_steps,
                                .to_steps = [](const config::Length& length, const std::string& key) {
                                  EXPECT_EQ(key, "warmup");
                                  EXPECT_EQ(length.unit, config::Length::Unit::steps);
                                  return static_cast<int64_t>(length.value);
                                }};
  return schedules().make(spec_of<LrSchedulerSpec>(yaml).type, context);
}

class ScheduleParity : public OptimTest {};

struct Curve {
  std::string name;
  int64_t warmup, total;
  double min_lr;
  int64_t idle_steps;  // 1 with a warm-up, which transformers starts at a rate of 0
};

const std::vector<Curve>& curves() {
  static const std::vector<Curve> curves{
      {"constant", 0, 50, 0, 0}, {"constant", 7, 50, 0, 1},  {"linear", 0, 50, 0, 0},
      {"linear", 7, 50, 0, 1},   {"linear", 49, 50, 0, 1},   {"cosine", 0, 50, 0, 0},
      {"cosine", 7, 50, 0, 1},   {"cosine", 0, 50, 0.03, 0}, {"cosine", 49, 50, 0.03, 1}};
  return curves;
}

TEST_F(ScheduleParity, MatchesTransformers) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  std::string json;
  for (const Curve& curve : curves()) {
    json += (json.empty() ? "[[\"" : ",[\"") + curve.name + "\"," + std::to_string(curve.warmup + curve.idle_steps) +
            "," + std::to_string(curve.total + curve.idle_steps) + "," + std::to_string(curve.min_lr) + "]";
  }
  const std::vector<double> expected = ask_reference("schedules", {json + "]"});
  size_t next = 0;
  for (const Curve& curve : curves()) {
    std::string yaml = "{type: " + curve.name + ", warmup: " + std::to_string(curve.warmup);
    if (curve.min_lr > 0) yaml += ", min_lr: " + std::to_string(curve.min_lr);
    const std::unique_ptr<Schedule> schedule = schedule_of(yaml + "}", curve.total);
    next += static_cast<size_t>(curve.idle_steps);
    ASSERT_LE(next + static_cast<size_t>(curve.total), expected.size());
    for (int64_t step = 0; step < curve.total; ++step, ++next) {
      EXPECT_NEAR(schedule->lr(step), expected[next], 1e-15) << yaml << " at " << step;
    }
  }
  EXPECT_EQ(next, expected.size());
}

TEST(Schedule, NeedsALastStepToFall) {
  for (const char* type : {"linear", "cosine"})
    EXPECT_THROW(schedule_of("{type: " + std::string(type) + "}", INT64_MAX), Error);
  EXPECT_EQ(schedule_of("{type: constant}", INT64_MAX)->lr(1'000'000), kPeak);
}

TEST(Schedule, WarmsUpEvenlyAndNeverFromZero) {
  const std::unique_ptr<Schedule> schedule = schedule_of("{type: cosine, warmup: 2}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(0), kPeak / 3);
  EXPECT_DOUBLE_EQ(schedule->lr(1), kPeak * 2 / 3);
  EXPECT_DOUBLE_EQ(schedule->lr(2), kPeak);
  EXPECT_LT(schedule->lr(3), kPeak);
}

TEST(Schedule, EndsAtTheFloorAndStaysThere) {
  for (const std::string name : {"linear", "cosine"}) {
    const std::unique_ptr<Schedule> schedule = schedule_of("{type: " + name + ", warmup: 2, min_lr: 0.1}", 10);
    EXPECT_DOUBLE_EQ(schedule->lr(6), 0.2) << name;  // halfway
    EXPECT_DOUBLE_EQ(schedule->lr(10), 0.1);
    EXPECT_DOUBLE_EQ(schedule->lr(25), 0.1);
  }
}

TEST(Schedule, SurvivesWarmupAsLongAsTraining) {
  const std::unique_ptr<Schedule> schedule = schedule_of("{type: linear, warmup: 10}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(9), kPeak * 10 / 11);
  EXPECT_DOUBLE_EQ(schedule->lr(10), kPeak);
  EXPECT_DOUBLE_EQ(schedule->lr(11), 0);
}

TEST(Schedule, RefusesFloorAboveThePeak) {
  try {
    schedule_of("{type: cosine, min_lr: 0.5}", 10);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.parts().where, "lr_scheduler.min_lr");
  }
}

TEST(Schedule, DescribesItsCurve) {
  EXPECT_EQ(schedule_of("{type: cosine, warmup: 700}", 19560)->describe(), "warmup 700 then cosine to 0");
  EXPECT_EQ(schedule_of("{type: linear, min_lr: 0.01}", 100)->describe(), "linear to 0.01");
  EXPECT_EQ(schedule_of("type: constant", 100)->describe(), "constant");
}

}  // namespace
}  // namespace gputrain::optim
