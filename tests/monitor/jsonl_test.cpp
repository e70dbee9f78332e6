#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/monitor/recorder.hpp"
#include "gputrain/monitor/summary.hpp"

namespace gputrain::monitor {
namespace {

class JsonlTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "metricsXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<nlohmann::json> lines() const {
    std::ifstream file(folder_ / "metrics.jsonl");
    std::vector<nlohmann::json> objects;
    for (std::string line; std::getline(file, line);) objects.push_back(nlohmann::json::parse(line));
    return objects;
  }

  /// The file as a run that goes on from these steps has it.
  std::unique_ptr<Recorder> open(int64_t step, int64_t evaluated_step, const std::string& inside = "") {
    auto file =
        std::make_unique<Recorder>(std::vector<std::string>{"jsonl"}, SinkRequest{folder_ / inside, no_console_});
    file->truncate(step, evaluated_step);
    return file;
  }

  Console no_console_{{.enabled = false}};
  std::filesystem::path folder_;
};

TEST_F(JsonlTest, WritesOneObjectPerLineWithTheContractsNames) {
  const auto file = open(0, 0);
  file->log({.step = 5, .epoch = 0.5, .kind = "train", .metrics = {{"train/loss", 1.25}}});
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 1U);
  EXPECT_EQ(objects[0]["step"], 5);
  EXPECT_EQ(objects[0]["epoch"], 0.5);
  EXPECT_EQ(objects[0]["kind"], "train");
  EXPECT_EQ(objects[0]["train/loss"], 1.25);
  EXPECT_NEAR(objects[0]["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
}

TEST_F(JsonlTest, LeavesNothingOpen) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto file = open(0, 0);
  const auto before = open_files();
  for (int64_t step = 0; step < 3; ++step) file->log({.step = step, .kind = "train"});
  EXPECT_EQ(open_files(), before);
}

TEST_F(JsonlTest, EndsALineThatLacksOnlyItsEnd) {
  std::ofstream(folder_ / "metrics.jsonl") << R"({"step": 1, "kind": "train"})";
  const auto resumed = open(1, 0);
  resumed->log({.step = 2, .kind = "train"});
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0]["step"], 1);
}

TEST_F(JsonlTest, DropsLinesPastTheResumeStepAndATornLastLine) {
  {
    const auto file = open(0, 0);
    for (int64_t step : {10, 20, 30}) file->log({.step = step, .kind = "train"});
    std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"step\": 20, \"kin";
  }
  const auto resumed = open(20, 20);
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[1]["step"], 20);
  std::ifstream left(folder_ / "metrics.jsonl.left");
  std::string line;
  ASSERT_TRUE(std::getline(left, line));
  EXPECT_EQ(nlohmann::json::parse(line)["step"], 30);
}

TEST_F(JsonlTest, DropsAnEvaluationThatTheCheckpointDoesNotKnow) {
  {
    const auto file = open(0, 0);
    const auto append = [&](int64_t step, const char* kind, const char* name) {
      file->log({.step = step, .kind = kind, .metrics = {{name, 1}}});
    };
    append(10, "eval", "val/loss");
    append(20, "train", "train/loss");
    append(20, "eval", "val/loss");
    append(20, "eval", "test/loss");
  }
  const auto resumed = open(20, 10);
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 3U);
  EXPECT_EQ(objects[0]["step"], 10);
  EXPECT_TRUE(objects[1].contains("train/loss"));
  EXPECT_TRUE(objects[2].contains("test/loss"));
}

TEST_F(JsonlTest, WritesNullForANumberThatJsonLacks) {
  const auto file = open(0, 0);
  file->log({.step = 1, .kind = "train", .metrics = {{"train/loss", std::numeric_limits<double>::quiet_NaN()}}});
  EXPECT_TRUE(lines()[0]["train/loss"].is_null());
}

TEST_F(JsonlTest, WritesTheMessageOfAnEvent) {
  const auto file = open(0, 0);
  file->log({.step = 4, .kind = "event", .text = "resumed at step 4, attempt 2"});
  file->log({.step = 6, .kind = "event", .label = "back", .text = "to step 4"});
  file->log({.step = 8, .kind = "eval", .label = "eval", .text = "8 val/loss 1"});
  const auto objects = lines();
  EXPECT_EQ(objects[0]["message"], "resumed at step 4, attempt 2");
  EXPECT_EQ(objects[1]["message"], "back to step 4");
  EXPECT_FALSE(objects[2].contains("message"));
}

TEST_F(JsonlTest, RefusesAFolderThatIsNotThere) {
  try {
    open(0, 0, "missing");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
  }
}

TEST_F(JsonlTest, SummaryHoldsEveryFieldOfTheContract) {
  Summary summary{.run_id = "job-1", .status = "done", .exit_code = 0};
  summary.metrics["val/loss"] = 1.5;
  summary.best["val/loss"] = {1.25, 40};
  write_summary(folder_ / "summary.json", summary);
  const auto json = nlohmann::json::parse(std::ifstream(folder_ / "summary.json"));
  for (const char* key :
       {"schema", "run_id", "status", "exit_code", "reason", "step", "epoch", "samples", "tokens", "world_size",
        "attempts", "metrics", "best", "throughput", "wall_seconds", "first_step_seconds", "peak_memory_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["best"]["val/loss"]["step"], 40);
  EXPECT_TRUE(json["throughput"].contains("tokens_per_second"));
}

}  // namespace
}  // namespace gputrain::monitor
