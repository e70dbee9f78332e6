#include "gputrain/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "optim_fixture.hpp"

namespace gputrain::optim::of_schedules {
namespace {

using ::testing::HasSubstr;

constexpr double kPeak = 0.3;
const std::set<std::string> kLengths{"warmup",    "decay",       "milestones", "step_size",
                                     "timescale", "first_cycle", "cooldown",   "interval"};

std::unique_ptr<Schedule> schedule_of(const std::string& yaml, int64_t total_steps) {
  const ScheduleContext context{.peak_lr = kPeak,
                                .total_steps = total_steps,
                                .to_steps = [=](const config::Length& length, const std::string& key) {
                                  using Unit = config::Length::Unit;
                                  EXPECT_TRUE(kLengths.contains(key)) << key;
                                  if (length.unit == Unit::percent)
                                    return std::llround(length.value / 100 * static_cast<double>(total_steps));
                                  if (length.unit == Unit::epochs) return std::llround(length.value * 100);
                                  EXPECT_EQ(length.unit, Unit::steps);
                                  return std::llround(length.value);
                                }};
  return make_schedule(spec_of<LrSchedulerSpec>(yaml), context);
}

class ScheduleParity : public OptimTest {};

struct Curve {
  std::string yaml;       // without `warmup`
  std::string name;       // the reference's
  std::string options{};  // the reference's, in JSON
  int64_t warmup = 0, total = 1000;
  bool has_warmup = true;  // else the reference has none
};

const std::vector<Curve>& curves() {
  static const std::vector<Curve> curves{
      {"type: constant", "constant"},
      {"type: constant", "constant", "", 7},
      {"type: linear", "linear"},
      {"type: linear", "linear", "", 7},
      {"type: linear", "linear", "", 49, 50},
      {"type: cosine", "cosine"},
      {"type: cosine", "cosine", "", 7},
      {"type: cosine, min_lr: 0.03", "cosine", R"("min_lr":0.03)"},
      {"type: cosine, min_lr: 0.03", "cosine", R"("min_lr":0.03)", 49, 50},
      {"type: wsd", "wsd", R"("num_decay_steps":100)"},
      {"type: wsd, decay: 250", "wsd", R"("num_decay_steps":250)", 70},
      {"type: wsd, decay: 300, decay_type: linear, min_lr: 0.03", "wsd",
       R"("num_decay_steps":300,"decay_type":"linear","min_lr_ratio":0.1)"},
      {"type: wsd, decay: 20%, decay_type: 1-sqrt, min_lr: 0.03", "wsd",
       R"("num_decay_steps":200,"decay_type":"1-sqrt","min_lr_ratio":0.1)"},
      {"type: wsd, decay: 930, decay_type: 1-sqrt", "wsd", R"("num_decay_steps":930,"decay_type":"1-sqrt")", 70},
      {"type: polynomial", "polynomial", R"("lr_end":0)", 70},
      {"type: polynomial, power: 2, min_lr: 1e-7", "polynomial", R"("lr_end":1e-7,"power":2)", 70},
      {"type: polynomial, power: 0.5, min_lr: 0.1", "polynomial", R"("lr_end":0.1,"power":0.5)"},
      {"type: inverse_sqrt", "inverse_sqrt"},
      {"type: inverse_sqrt", "inverse_sqrt", R"("timescale":70)", 70},
      {"type: inverse_sqrt, timescale: 300", "inverse_sqrt", R"("timescale":300)", 70},
      {"type: cosine_restarts", "hard_restarts", "", 70},
      {"type: cosine_restarts, num_cycles: 4", "hard_restarts", R"("num_cycles":4)"},
      {"type: cosine_restarts, num_cycles: 3", "hard_restarts", R"("num_cycles":3)", 70},
      {"type: cosine_restarts, first_cycle: 130", "warm_restarts", R"("T_0":130)", 0, 1000, false},
      {"type: cosine_restarts, first_cycle: 50, t_mult: 2, min_lr: 0.03", "warm_restarts",
       R"("T_0":50,"T_mult":2,"eta_min":0.03)", 0, 1000, false},
      {"type: cosine_restarts, first_cycle: 1, t_mult: 3", "warm_restarts", R"("T_0":1,"T_mult":3)", 0, 1000, false},
      {"type: onecycle", "onecycle", "", 0, 1000, false},
      {"type: onecycle, warmup: 0", "onecycle", R"("pct_start":0.0)", 0, 1000, false},
      {"type: onecycle, warmup: 10%, anneal_strategy: linear, div_factor: 10, final_div_factor: 100", "onecycle",
       R"("pct_start":0.1,"anneal_strategy":"linear","div_factor":10,"final_div_factor":100)", 0, 1000, false},
      {"type: onecycle, warmup: 400, three_phase: true", "onecycle", R"("pct_start":0.4,"three_phase":true)", 0, 1000,
       false},
      {"type: multistep, milestones: [3ep, 600, 60%, 90%]", "multistep", R"("milestones":[300,600,600,900])", 0, 1000,
       false},
      {"type: multistep, milestones: [900, 300], gamma: 0.5", "multistep", R"("milestones":[300,900],"gamma":0.5)", 0,
       1000, false},
      {"type: exponential, gamma: 0.995, step_size: 1", "exponential", R"("gamma":0.995)", 0, 1000, false},
      {"type: exponential, gamma: 0.5", "step", R"("gamma":0.5,"step_size":100)", 0, 1000, false},
      {"type: exponential, gamma: 0.9, step_size: 7", "step", R"("gamma":0.9,"step_size":7)", 0, 1000, false}};
  return curves;
}

TEST_F(ScheduleParity, MatchesTransformersAndTorch) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const auto idle_of = [](const Curve& curve) { return curve.warmup > 0 ? 1 : 0; };  // theirs begins at a rate of 0
  std::string json;
  for (const Curve& curve : curves()) {
    json += (json.empty() ? "[[\"" : ",[\"") + curve.name + "\"," + std::to_string(curve.warmup + idle_of(curve)) +
            "," + std::to_string(curve.total + idle_of(curve)) + ",{" + curve.options + "}]";
  }
  const std::vector<double> expected = ask_reference("schedules", {json + "]"});
  size_t next = 0;
  for (const Curve& curve : curves()) {
    const std::string warmup = curve.has_warmup ? ", warmup: " + std::to_string(curve.warmup) : "";
    const std::unique_ptr<Schedule> schedule = schedule_of("{" + curve.yaml + warmup + "}", curve.total);
    next += static_cast<size_t>(idle_of(curve));
    ASSERT_LE(next + static_cast<size_t>(curve.total), expected.size());
    double distance = 0;
    for (int64_t step = 0; step < curve.total; ++step, ++next)
      distance = std::max(distance, std::abs(schedule->lr(step) - expected[next]));
    EXPECT_LE(distance, 1e-14) << curve.yaml << ", warmup " << curve.warmup;
  }
  EXPECT_EQ(next, expected.size());
}

struct TimmCurve {
  std::string yaml, options;  // options of create_scheduler_v2, in JSON
};

TEST_F(ScheduleParity, MatchesTimmByUpdatesAndByEpochsAlsoAfterAResume) {
  GPUTRAIN_NEED_REFERENCE("timm");
  const std::string warmup = "warmup: 2ep, warmup_lr: 0.001", ends = ", min_lr: 0.0004, cooldown: 3ep";
  const std::string rising = R"("num_epochs":10,"warmup_epochs":2,"warmup_lr":0.001,"step_on_epochs":)";
  const std::string ending = R"(,"min_lr":0.0004,"cooldown_epochs":3)", prefix = R"(,"warmup_prefix":true)";
  const std::vector<TimmCurve> cases{
      {"type: cosine, warmup_prefix: false, " + warmup + ends, R"("sched":"cosine",)" + rising + "false" + ending},
      {"type: cosine, " + warmup + ends, R"("sched":"cosine",)" + rising + "false" + ending + prefix},
      {"type: cosine, interval: 1ep, warmup_prefix: false, " + warmup + ends,
       R"("sched":"cosine",)" + rising + "true" + ending},
      {"type: cosine, interval: 1ep, " + warmup + ends, R"("sched":"cosine",)" + rising + "true" + ending + prefix},
      {"type: cosine, interval: 1ep, min_lr: 0.01", R"("sched":"cosine","num_epochs":7,"min_lr":0.01)"},
      {"type: polynomial, power: 0.1, warmup_prefix: false, " + warmup + ends,
       R"("sched":"poly","decay_rate":0.1,)" + rising + "false" + ending},
      {"type: polynomial, power: 2, interval: 1ep, " + warmup + ends,
       R"("sched":"poly","decay_rate":2,)" + rising + "true" + ending + prefix},
      {"type: exponential, step_size: 3ep, gamma: 0.2, " + warmup,
       R"("sched":"step","decay_epochs":3,"decay_rate":0.2,)" + rising + "false"},
      {"type: exponential, step_size: 2.4ep, gamma: 0.97, interval: 1ep, " + warmup,
       R"("sched":"step","decay_epochs":2.4,"decay_rate":0.97,)" + rising + "true"},
      {"type: multistep, milestones: [299, 699], gamma: 0.2, " + warmup,
       R"("sched":"multistep","decay_milestones":[3,7],"decay_rate":0.2,)" + rising + "false"},
      {"type: multistep, milestones: [2ep, 6ep], interval: 1ep, " + warmup,
       R"("sched":"multistep","decay_milestones":[3,7],)" + rising + "true"},
      {"type: multistep, milestones: [5ep, 8ep, 11ep], interval: 1ep, " + warmup,  // a step of 3 after the warm-up
       R"("sched":"step","decay_epochs":3,)" + rising + "true" + prefix},
      {"type: constant, " + warmup, R"("sched":"constant",)" + rising + "false"},
      {"type: wsd, decay: 3ep, decay_type: 1-sqrt, min_lr: 0.01, " + warmup,
       R"("sched":"wsd","decay_epochs":3,"min_lr":0.01,)" + rising + "false"}};
  std::string json;
  for (const TimmCurve& one : cases) json += (json.empty() ? "[{" : ",{") + one.options + "}";
  const std::vector<double> expected = ask_reference("timm", {json + "]"});
  size_t next = 0;
  for (const TimmCurve& one : cases) {
    ASSERT_LT(next, expected.size());
    const auto total = static_cast<int64_t>(expected[next++]);
    const std::unique_ptr<Schedule> schedule = schedule_of("{" + one.yaml + "}", total);
    double distance = 0;
    for (int64_t step = 0; step < total; ++step)
      distance = std::max(distance, std::abs(schedule->lr(step) - expected[next++]));
    EXPECT_LE(distance, 1e-12) << one.yaml;
  }
  EXPECT_EQ(next, expected.size());
}

std::string refusal_of(const std::string& yaml, int64_t total_steps) {
  try {
    schedule_of(yaml, total_steps);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Schedule, RefusesPhasesThatDoNotFit) {
  EXPECT_THAT(refusal_of("{type: wsd, warmup: 60, decay: 50}", 100), HasSubstr("do not fit in 100 steps"));
  EXPECT_EQ(refusal_of("{type: wsd, warmup: 50, decay: 50}", 100), "accepted");
  EXPECT_THAT(refusal_of("{type: cosine, warmup: 60, cooldown: 50}", 100), HasSubstr("do not fit in 100 steps"));
  EXPECT_THAT(refusal_of("{type: linear, warmup_lr: 1e-5}", 100), HasSubstr("there is no warm-up"));
  EXPECT_THAT(refusal_of("{type: onecycle, warmup: 60, three_phase: true}", 100), HasSubstr("lr_scheduler.warmup"));
  EXPECT_THAT(refusal_of("{type: onecycle, warmup: 101}", 100), HasSubstr("lr_scheduler.warmup"));
  EXPECT_THAT(refusal_of("{type: multistep}", 100), HasSubstr("milestones"));
  EXPECT_THAT(refusal_of("{type: cosine_restarts, first_cycle: 10, num_cycles: 3}", 100), HasSubstr("num_cycles"));
  EXPECT_THAT(refusal_of("{type: cosine_restarts, t_mult: 2}", 100), HasSubstr("first_cycle"));
}

TEST(Schedule, AnswersNamesOfOtherTools) {
  EXPECT_THAT(refusal_of("{type: onecycle, pct_start: 0.3}", 100), HasSubstr("warmup: 30%"));
  EXPECT_THAT(refusal_of("{type: wsd, num_decay_steps: 30}", 100), HasSubstr("decay: 30"));
  EXPECT_THAT(refusal_of("{type: cosine_restarts, T_0: 30}", 100), HasSubstr("first_cycle: 30"));
}

TEST(Schedule, CountsMilestonesFromTheStartThroughTheWarmup) {
  const auto schedule = schedule_of("{type: multistep, warmup: 3, milestones: [2, 5]}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(1), kPeak / 2);
  EXPECT_DOUBLE_EQ(schedule->lr(2), kPeak * 3 / 4 * 0.1);
  EXPECT_DOUBLE_EQ(schedule->lr(4), kPeak * 0.1);
  EXPECT_DOUBLE_EQ(schedule->lr(5), kPeak * 0.1 * 0.1);
}

TEST(Schedule, NeedsALastStepToFall) {
  for (const char* type : {"linear", "cosine", "polynomial", "wsd, decay: 5", "onecycle, warmup: 5", "cosine_restarts"})
    EXPECT_THROW(schedule_of("{type: " + std::string(type) + "}", INT64_MAX), Error) << type;
  EXPECT_EQ(schedule_of("{type: constant}", INT64_MAX)->lr(1'000'000), kPeak);
  EXPECT_EQ(schedule_of("{type: cosine_restarts, first_cycle: 8}", INT64_MAX)->lr(800), kPeak);
  EXPECT_NEAR(schedule_of("{type: inverse_sqrt}", INT64_MAX)->lr(30'000), kPeak / 2, 1e-15);
}

TEST(Schedule, WarmsUpEvenlyAndNeverFromZero) {
  const std::unique_ptr<Schedule> schedule = schedule_of("{type: cosine, warmup: 2}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(0), kPeak / 3);
  EXPECT_DOUBLE_EQ(schedule->lr(1), kPeak * 2 / 3);
  EXPECT_DOUBLE_EQ(schedule->lr(2), kPeak);
  EXPECT_LT(schedule->lr(3), kPeak);
}

TEST(Schedule, EndsAtTheFloorAndStaysThere) {
  for (const std::string name : {"linear", "cosine", "polynomial", "wsd, decay: 8", "cosine_restarts"}) {
    const std::unique_ptr<Schedule> schedule = schedule_of("{type: " + name + ", warmup: 2, min_lr: 0.1}", 10);
    EXPECT_DOUBLE_EQ(schedule->lr(6), 0.2) << name;  // halfway
    EXPECT_DOUBLE_EQ(schedule->lr(10), 0.1);
    EXPECT_DOUBLE_EQ(schedule->lr(25), 0.1);
  }
}

TEST(Schedule, StaysAtItsFloorInTheCooldown) {
  const std::unique_ptr<Schedule> schedule = schedule_of("{type: linear, min_lr: 0.1, cooldown: 4}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(3), 0.2);
  EXPECT_DOUBLE_EQ(schedule->lr(6), 0.1);
  EXPECT_DOUBLE_EQ(schedule->lr(9), 0.1);
}

TEST(Schedule, SurvivesWarmupAsLongAsTraining) {
  const std::unique_ptr<Schedule> schedule = schedule_of("{type: linear, warmup: 10}", 10);
  EXPECT_DOUBLE_EQ(schedule->lr(9), kPeak * 10 / 11);
  EXPECT_DOUBLE_EQ(schedule->lr(10), kPeak);
  EXPECT_DOUBLE_EQ(schedule->lr(11), 0);
}

struct Plateau {
  std::string yaml, options;  // ours; the reference's, in JSON
  bool smaller_is_better = true;
};

// Values that improve, stall, improve by less than a threshold, worsen, and are not finite.
TEST_F(ScheduleParity, FollowsEvaluationsAsTorchDoes) {
  GPUTRAIN_NEED_REFERENCE("torch");
  const std::vector<Plateau> cases{
      {"patience: 2", R"("patience":2)"},
      {"patience: 0, factor: 0.5, min_lr: 0.02", R"("patience":0,"factor":0.5,"min_lr":0.02)"},
      {"patience: 1, cooldown: 3, threshold: 0.05", R"("patience":1,"cooldown":3,"threshold":0.05)"},
      {"patience: 1, threshold: 0.3, threshold_mode: abs", R"("patience":1,"threshold":0.3,"threshold_mode":"abs")"},
      {"patience: 2, threshold: 0.05", R"("patience":2,"threshold":0.05,"mode":"max")", false},
      {"patience: 1, threshold: 0.3, threshold_mode: abs",
       R"("patience":1,"threshold":0.3,"threshold_mode":"abs","mode":"max")", false},
      {"patience: 0, factor: 0.01", R"("patience":0,"factor":0.01)"}};
  const std::vector<std::string> values{"3",   "2.5", "2.4", "2.39", "2.39", "2.6", "NaN", "2.3", "2.31", "2.32", "2.2",
                                        "2.5", "2.5", "2.5", "2.5",  "2.5",  "2.5", "2.9", "3.5", "3.5",  "3.6",  "1"};
  std::string json, joined;
  for (const std::string& value : values) joined += (joined.empty() ? "\"" : ",\"") + value + "\"";
  for (const Plateau& one : cases) json += (json.empty() ? "[[{" : ",[{") + one.options + "},[" + joined + "]]";
  const std::vector<double> expected = ask_reference("plateau", {json + "]"});
  ASSERT_EQ(expected.size(), cases.size() * values.size());
  size_t next = 0;
  for (const Plateau& one : cases) {
    const auto schedule = schedule_of("{type: plateau, " + one.yaml + "}", 100);
    Feedback feedback;
    for (const std::string& value : values) {
      schedule->follow({.metric = "val/loss", .value = std::stod(value), .smaller_is_better = one.smaller_is_better},
                       feedback);
      EXPECT_NEAR(schedule->lr(9) * feedback.factor, expected[next++], 1e-12) << one.yaml << " after " << value;
    }
  }
}

TEST(Schedule, JudgesEvaluationsByOneMetric) {
  const auto schedule = schedule_of("{type: plateau, patience: 0}", 100);
  Feedback feedback;
  schedule->follow({.metric = "val/loss", .value = 1}, feedback);
  schedule->follow({.metric = "val/perplexity", .value = 3}, feedback);
  EXPECT_EQ(feedback.factor, 1);
  schedule->follow({.metric = "val/perplexity", .value = 3}, feedback);
  EXPECT_DOUBLE_EQ(feedback.factor, 0.1);
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
  EXPECT_EQ(schedule_of("{type: cosine, warmup: 5, warmup_lr: 1e-5, cooldown: 20, interval: 1ep}", 1000)->describe(),
            "warmup 5 from 1e-05 then cosine to 0, which stays for 20, changed every 100");
  EXPECT_EQ(schedule_of("{type: wsd, warmup: 5}", 100)->describe(), "warmup 5 then constant then cosine to 0 over 10");
  EXPECT_EQ(schedule_of("{type: multistep, milestones: [30, 60%]}", 100)->describe(), "times 0.1 at 30, 60");
}

}  // namespace
}  // namespace gputrain::optim::of_schedules
