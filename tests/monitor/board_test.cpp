#include "gputrain/monitor/board.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/monitor/measurements.hpp"
#include "gputrain/monitor/samples_file.hpp"

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

TEST(Board, PassesOverValuesOfOtherTypes) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "board_metrics.jsonl";
  std::ofstream(path) << R"({"step":1,"time":"x","kind":"train","train/loss":1})"
                      << "\n"
                      << R"({"step":"2","time":null,"kind":7,"train/loss":"1"})"
                      << "\n"
                      << R"({"step":3,"kind":"event","message":[1]})"
                      << "\n[]\n";
  Board board;
  board.begin({.places = {"n0:0"}});
  board.read_history(path);
  EXPECT_EQ(board.json(0)["points"][0]["step"], 1);
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

TEST(Board, GivesTextsThatAClientDoesNotHave) {
  const std::string path = testing::TempDir() + "board_texts.jsonl";
  std::ofstream(path) << R"({"time":1,"step":5,"kind":"sample","name":"sample","prompt":"p","text":"once"})"
                      << "\n";
  Board board;
  board.begin({.places = {"n0:0"}});
  board.read_history(path);
  board.add({.step = 6, .kind = "train", .metrics = {{"train/loss", 1.0}}});
  const auto known = board.json();
  EXPECT_EQ(known["texts"], nlohmann::ordered_json::parse(
                                R"([{"step":5,"name":"sample","prompt":"p","text":"once","is_answer":false}])"));
  EXPECT_THAT(known["points"], SizeIs(1));
  board.add({.step = 10, .kind = "sample", .texts = {{"sample", "p", "upon"}}});
  const auto state = board.json(known["newest"].get<int64_t>());
  EXPECT_THAT(state["points"], SizeIs(0));
  EXPECT_EQ(state["texts"][0]["text"], "upon");
  EXPECT_THAT(board.json(state["newest"].get<int64_t>())["texts"], SizeIs(0));
}

TEST(Board, GivesTextsOfAllAttemptsByTheirPrompts) {
  const std::string path = testing::TempDir() + "board_samples.jsonl";
  std::filesystem::remove(path);
  const auto write = [](Sink& sink, int64_t step) {
    sink.log(
        {.step = step, .kind = "sample", .texts = {{"sample", "say c", "c\xff", true}, {"sample/2", "to", " be"}}});
  };
  const auto file = samples_sink(path);
  for (const int64_t step : {10, 20}) write(*file, step);
  Board board;
  board.begin({.places = {"n0:0"}});
  board.read_history(path);
  write(*board_sink(board), 30);
  const auto texts = board.json()["texts"];
  ASSERT_THAT(texts, SizeIs(6));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[2 * i]["step"], 10 * (i + 1));
    EXPECT_EQ(texts[2 * i]["prompt"], "say c");
    EXPECT_EQ(texts[2 * i]["is_answer"], true);
    EXPECT_EQ(texts[2 * i + 1]["text"], " be");
  }
  EXPECT_EQ(texts[0]["text"], "c\uFFFD");
}

TEST(Board, KeepsTheNewestOfVeryManyTexts) {
  Board board;
  board.begin({.places = {"n0:0"}});
  for (int64_t step = 1; step <= 1000; ++step) {
    board.add({.step = step, .kind = "train", .metrics = {{"train/loss", 1.0}}});
    board.add({.step = step, .kind = "sample", .texts = {{"sample", "a", "b"}}});
  }
  const auto state = board.json();
  EXPECT_THAT(state["points"], SizeIs(1000));
  EXPECT_THAT(state["texts"], SizeIs(200));
  EXPECT_EQ(state["texts"].back()["step"], 1000);
}

TEST(SamplesFile, HasWhatIsNotRepeated) {
  const std::string path = testing::TempDir() + "samples.jsonl";
  std::filesystem::remove(path);
  EXPECT_FALSE(has_samples_of(path, 10));
  const auto file = samples_sink(path);
  for (const int64_t step : {10, 20}) file->log({.step = step, .kind = "sample", .texts = {{"sample", "a", "b"}}});
  std::ofstream(path, std::ios::app) << R"({"step":10,"te)";
  samples_sink(path)->truncate(10, 0);
  EXPECT_TRUE(has_samples_of(path, 10));
  EXPECT_FALSE(has_samples_of(path, 20));
  std::ifstream kept(path);
  std::string line;
  EXPECT_TRUE(std::getline(kept, line));
  EXPECT_FALSE(std::getline(kept, line));
}

/// A board with the curve of an earlier attempt, whose loss was 1 until its last line.
void read_history(Board& board, const std::string& name) {
  const std::string path = testing::TempDir() + name;
  std::ofstream file(path, std::ios::trunc);
  for (int step = 1; step <= 30; ++step)
    file << R"({"time":1,"step":)" << step << R"(,"kind":"train","train/lr":0.01,"train/loss":)" << (step < 30 ? 1 : 9)
         << "}\n";
  file << R"({"time":1,"step":30,"kind":"eval","val/loss":7})"
       << "\n";
  file.close();
  board.begin({.places = {"n0:0"}});
  board.read_history(path);
}

TEST(Board, KeepsHistoryApartFromPresentValues) {
  Board board;
  read_history(board, "board_history");
  EXPECT_THAT(board.json()["points"], SizeIs(31));
  for (const char* name : {"train/lr", "train/loss", "val/loss", "train/loss_spike"})
    EXPECT_FALSE(board.values().contains(name)) << name;
  EXPECT_THAT(board.prometheus(), Not(HasSubstr("train_lr")));
  EXPECT_FALSE(board.json()["values"].contains("val/loss"));
}

TEST(Board, ComparesNewValuesWithHistory) {
  Board board;
  read_history(board, "board_history_2");
  board.add({.step = 31, .kind = "train", .metrics = {{"train/loss", 4.0}}});
  EXPECT_EQ(board.values().at("train/loss_spike").most, 4);
  EXPECT_FALSE(board.values().contains("train/lr"));
}

TEST(Board, CountsTheTimeSinceAStepWithoutPauses) {
  Board board;
  board.begin({.places = {"n0:0"}});
  board.set_state("training");
  EXPECT_FALSE(board.values().contains("since_step_seconds")) << "no step in this attempt";
  board.note_step(1, 0, 1, 0);
  board.set_state("paused");
  EXPECT_FALSE(board.values().contains("since_step_seconds"));
  const auto paused = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - paused < std::chrono::milliseconds(300)) {
  }
  board.set_state("training");
  EXPECT_LT(board.values().at("since_step_seconds").most, 0.25);
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
