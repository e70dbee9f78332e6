// Costs of recorded events: self time by thread, units' backward passes, floating-point operations, the trace's text.
#include "profile/profile_summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profile/operator_flops.hpp"
#include "profile/profile_trace.hpp"

namespace gputrain::train {
namespace {

using Kind = ProfiledEvent::Kind;

ProfiledEvent event(const std::string& name, int64_t begin_ms, int64_t end_ms, Kind kind = Kind::op,
                    uint64_t track = 1) {
  return {.name = name, .kind = kind, .track = track, .begin_ns = begin_ms * 1'000'000, .end_ns = end_ms * 1'000'000};
}

const ProfileCost& cost(const std::vector<ProfileCost>& costs, const std::string& name) {
  for (const ProfileCost& one : costs) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no cost of " + name);
}

TEST(ProfileSummary, SharesOutTheTimeOfSteps) {
  const std::vector<ProfiledEvent> events{
      event("between steps", 101, 119),
      event("step", 0, 100, Kind::range),
      event("forward", 10, 50, Kind::range),
      event("linear", 10, 30),
      event("addmm", 12, 28),
      event("linear", 14, 18),  // calls itself
      event("step", 120, 220, Kind::range),
      event("linear", 120, 140),
  };
  const ProfileSummary summary = summarize_profile(events, {});
  EXPECT_EQ(summary.steps, 2);
  EXPECT_DOUBLE_EQ(summary.seconds, 0.2);
  EXPECT_EQ(cost(summary.operators, "linear").calls, 3);
  EXPECT_NEAR(cost(summary.operators, "linear").self_seconds, 0.028, 1e-12);
  EXPECT_NEAR(cost(summary.operators, "linear").total_seconds, 0.040, 1e-12);
  EXPECT_NEAR(cost(summary.operators, "addmm").self_seconds, 0.012, 1e-12);
  EXPECT_NEAR(summary.range_seconds("forward"), 0.040, 1e-12);
  EXPECT_EQ(summary.range_seconds("backward"), 0);
  double sum = 0;
  for (const auto& costs : {summary.operators, summary.ranges}) {
    for (const ProfileCost& one : costs) sum += one.self_seconds;
  }
  EXPECT_NEAR(sum, summary.seconds, 1e-12);
}

TEST(ProfileSummary, GivesBackwardNodesToUnits) {
  std::vector<ProfiledEvent> events{event("step", 0, 100, Kind::range),
                                    event("h.0", 0, 10, Kind::unit),
                                    event("h.1", 10, 30, Kind::unit),
                                    event("GeluBackward", 40, 47, Kind::backward),
                                    event("InnerBackward", 41, 42, Kind::backward),
                                    event("AddBackward", 50, 51, Kind::backward)};
  events[3].sequence = 7;
  events[4].sequence = 5;   // within another node
  events[5].sequence = 99;  // of no unit
  const ProfileSummary summary =
      summarize_profile(events, {{.unit = "h.0", .first = 2, .end = 5}, {.unit = "h.1", .first = 5, .end = 9}});
  ASSERT_EQ(summary.units.size(), 2U);
  EXPECT_EQ(summary.units[0].name, "h.0");
  EXPECT_NEAR(summary.units[0].forward_seconds, 0.010, 1e-12);
  EXPECT_EQ(summary.units[0].backward_seconds, 0);
  EXPECT_NEAR(summary.units[1].forward_seconds, 0.020, 1e-12);
  EXPECT_NEAR(summary.units[1].backward_seconds, 0.007, 1e-12);
}

TEST(ProfileSummary, CountsBusyTimeOfStreamsOnce) {
  const ProfileSummary summary =
      summarize_profile({event("step", 0, 100, Kind::range), event("gemm", 10, 40, Kind::device, 10'007),
                         event("copy", 30, 60, Kind::device, 10'013), event("gemm", 70, 80, Kind::device, 10'007)},
                        {});
  EXPECT_NEAR(summary.busy_seconds, 0.060, 1e-12);
  EXPECT_NEAR(cost(summary.kernels, "gemm").self_seconds, 0.040, 1e-12);
  EXPECT_EQ(cost(summary.kernels, "gemm").calls, 2);
}

TEST(ProfileFlops, CountsTwoPerMultiplication) {
  EXPECT_EQ(flops_of("aten::mm", {{3, 5}, {5, 7}}, {}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("aten::addmm", {{7}, {3, 5}, {5, 7}}, {}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("aten::bmm", {{2, 3, 5}, {2, 5, 7}}, {}), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("mkldnn::_linear_pointwise", {{2, 3, 5}, {7, 5}, {7}}, {}), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("aten::relu", {{3, 5}}, {}), 0);
  // 3 images of 4 channels and 9 x 7 pixels, 6 kernels of 3 x 3, stride 2, padding 1: 5 x 4 outputs.
  EXPECT_EQ(flops_of("aten::convolution", {{3, 4, 9, 7}, {6, 4, 3, 3}, {}}, {{2, 2}, {1, 1}, {1, 1}}),
            2 * 3 * 6 * 5 * 4 * (4 * 9));
  EXPECT_EQ(flops_of("aten::convolution_backward", {{3, 6, 5, 4}, {3, 4, 9, 7}, {6, 4, 3, 3}}, {}),
            2 * (2 * 3 * 6 * 5 * 4 * (4 * 9)));
  const Shapes queries_keys{{2, 8, 16, 4}, {2, 8, 32, 4}, {2, 8, 32, 4}};
  EXPECT_EQ(flops_of("aten::_scaled_dot_product_flash_attention_for_cpu", queries_keys, {}),
            2 * (2 * 2 * 8 * 16 * 32 * 4));
}

TEST(ProfileFlops, TakesAnyShapes) {
  const std::vector<Shapes> odd{{}, {{}}, {{3}}, {{}, {}}, {{3, 4}, {}}, {{1, 2, 3, 4}, {}}, {{0, 0}, {0, 0}, {0, 0}}};
  for (const char* op : {"mm", "addmm", "bmm", "convolution", "convolution_backward",
                         "_scaled_dot_product_flash_attention_for_cpu_backward", ""}) {
    for (const Shapes& shapes : odd) EXPECT_EQ(flops_of(std::string("aten::") + op, shapes, {{}, {0}, {}}), 0) << op;
  }
}

TEST(ProfileTrace, IsJsonOnOneClock) {
  std::vector<ProfiledEvent> events{event("aten::\"mm\"\n\xff", 7, 9)};
  events[0].begin_ns = 1'700'000'000'123'456'789;
  events[0].end_ns = events[0].begin_ns + 1'001;
  events[0].flops = 30;
  const auto trace = nlohmann::json::parse(trace_text(events, {.rank = 3,
                                                               .host = "h1",
                                                               .base_ns = 1'700'000'000'000'000'000,
                                                               .clock_ahead_ns = 6'789,
                                                               .tracks = {{1, "main thread"}}}));
  const auto& list = trace.at("traceEvents");
  const auto& last = list.back();
  EXPECT_EQ(last.at("pid"), 3);
  EXPECT_EQ(last.at("ts"), 123450.0);
  EXPECT_EQ(last.at("dur"), 1.001);
  EXPECT_EQ(last.at("args").at("flops"), 30);
  EXPECT_EQ(list[0].at("args").at("name"), "rank 3");
  EXPECT_EQ(nlohmann::json::parse(trace_text({}, {})).at("traceEvents").size(), 3U);
}

}  // namespace
}  // namespace gputrain::train
