#include "gputrain/monitor/board.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/monitor/measurements.hpp"

namespace gputrain::monitor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(Board, IsAPageForPrometheus) {
  Board board;
  board.begin({.run_id = R"(a "b\)", .name = "a", .folder = "runs/a", .places = {"n0:0", "n1:0"}});
  board.note_step(12, 0.5, 96, 0);
  board.add({.step = 12, .kind = "eval", .metrics = {{"val/loss", std::nan("")}, {"val/top1", 75.0}}});
  board.set_rank(1, {{"phase/load", 1.5}, {"gpu/temperature_celsius", 71}});
  const std::string page = board.prometheus();
  EXPECT_THAT(page, HasSubstr("# HELP gputrain_steps_total Optimizer steps done\n# TYPE gputrain_steps_total counter\n"
                              "gputrain_steps_total{run=\"a \\\"b\\\\\"} 12\n"));
  EXPECT_THAT(page, HasSubstr("gputrain_val_loss{run=\"a \\\"b\\\\\"} NaN\n"));
  EXPECT_THAT(page, HasSubstr("gputrain_val_top1_ratio{run=\"a \\\"b\\\\\"} 0.75\n"));
  EXPECT_THAT(page, HasSubstr(R"(,rank="1",host="n1",phase="load"} 1.5)"));
  EXPECT_THAT(page, HasSubstr(R"(gputrain_gpu_temperature_celsius{run="a \"b\\",rank="1",host="n1"} 71)"));
  EXPECT_THAT(page, Not(HasSubstr("tokens")));
}

TEST(Board, GivesPointsThatAClientDoesNotHave) {
  Board board;
  board.begin({.places = {"n0:0"}});
  for (int64_t step = 1; step <= 3; ++step)
    board.add({.step = step, .kind = "train", .metrics = {{"train/loss", 1.0}}});
  board.add({.step = 3, .kind = "event", .label = "order", .text = "saves"});
  const auto state = board.json(2);
  EXPECT_THAT(state["points"], SizeIs(1));
  EXPECT_EQ(state["points"][0]["step"], 3);
  EXPECT_EQ(state["events"][0]["text"], "order saves");
}

TEST(Board, KeepsLongCurvesWithFewerPoints) {
  Board board;
  board.begin({.places = {"n0:0"}});
  for (int64_t step = 1; step <= 50'000; ++step)
    board.add({.step = step, .kind = step % 1000 == 0 ? "eval" : "train", .metrics = {{"train/loss", 1.0}}});
  const auto points = board.json()["points"];
  EXPECT_LE(points.size(), 4000U);
  EXPECT_EQ(points.back()["step"], 50'000);
  EXPECT_EQ(std::ranges::count(points, "eval", [](const auto& point) { return point["kind"]; }), 50);
  for (size_t i = 1; i < points.size(); ++i) EXPECT_LT(points[i - 1]["number"], points[i]["number"]);
}

TEST(Measurements, HavePrometheusNamesInBaseUnits) {
  for (const Measurement& one : measurements()) {
    const std::string name = prometheus_name(one.name).name;
    EXPECT_TRUE(name.starts_with("gputrain_"));
    EXPECT_EQ(name.ends_with("_total"), one.kind == MeasurementKind::counter) << name;
    EXPECT_FALSE(one.help.ends_with('.')) << name;
  }
  EXPECT_EQ(prometheus_name("val/top1").name, "gputrain_val_top1_ratio");
}

}  // namespace
}  // namespace gputrain::monitor
