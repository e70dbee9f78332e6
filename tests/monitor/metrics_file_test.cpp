#include "gputrain/monitor/metrics_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/monitor/summary.hpp"

namespace gputrain::monitor {
namespace {

class MetricsFileTest : public testing::Test {
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

  std::filesystem::path folder_;
};

TEST_F(MetricsFileTest, WritesOneObjectPerLineWithTheContractsNames) {
  MetricsFile file(folder_ / "metrics.jsonl", 0, 0);
  file.append({.step = 5, .epoch = 0.5, .kind = "train", .message = {}}, {{"train/loss", 1.25}});
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 1U);
  EXPECT_EQ(objects[0]["step"], 5);
  EXPECT_EQ(objects[0]["epoch"], 0.5);
  EXPECT_EQ(objects[0]["kind"], "train");
  EXPECT_EQ(objects[0]["train/loss"], 1.25);
  EXPECT_NEAR(objects[0]["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
}

TEST_F(MetricsFileTest, LeavesNothingOpen) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  MetricsFile file(folder_ / "metrics.jsonl", 0, 0);
  const auto before = open_files();
  for (int64_t step = 0; step < 3; ++step) file.append({.step = step, .epoch = 0, .kind = "train", .message = {}});
  EXPECT_EQ(open_files(), before);
}

TEST_F(MetricsFileTest, EndsALineThatLacksOnlyItsEnd) {
  std::ofstream(folder_ / "metrics.jsonl") << R"({"step": 1, "kind": "train"})";
  MetricsFile resumed(folder_ / "metrics.jsonl", 1, 0);
  resumed.append({.step = 2, .epoch = 0, .kind = "train", .message = {}});
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0]["step"], 1);
}

TEST_F(MetricsFileTest, DropsLinesPastTheResumeStepAndATornLastLine) {
  {
    MetricsFile file(folder_ / "metrics.jsonl", 0, 0);
    for (int64_t step : {10, 20, 30}) file.append({.step = step, .epoch = 0, .kind = "train", .message = {}});
    std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"step\": 20, \"kin";
  }
  MetricsFile resumed(folder_ / "metrics.jsonl", 20, 20);
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[1]["step"], 20);
  std::ifstream left(folder_ / "metrics.jsonl.left");
  std::string line;
  ASSERT_TRUE(std::getline(left, line));
  EXPECT_EQ(nlohmann::json::parse(line)["step"], 30);
}

TEST_F(MetricsFileTest, DropsAnEvaluationThatTheCheckpointDoesNotKnow) {
  {
    MetricsFile file(folder_ / "metrics.jsonl", 0, 0);
    const auto append = [&](int64_t step, const char* kind, const char* name) {
      file.append({.step = step, .epoch = 0, .kind = kind, .message = {}}, {{name, 1}});
    };
    append(10, "eval", "val/loss");
    append(20, "train", "train/loss");
    append(20, "eval", "val/loss");
    append(20, "eval", "test/loss");
  }
  MetricsFile resumed(folder_ / "metrics.jsonl", 20, 10);
  const auto objects = lines();
  ASSERT_EQ(objects.size(), 3U);
  EXPECT_EQ(objects[0]["step"], 10);
  EXPECT_TRUE(objects[1].contains("train/loss"));
  EXPECT_TRUE(objects[2].contains("test/loss"));
}

TEST_F(MetricsFileTest, WritesNullForANumberThatJsonLacks) {
  MetricsFile file(folder_ / "metrics.jsonl", 0, 0);
  file.append({.step = 1, .epoch = 0, .kind = "train", .message = {}},
              {{"train/loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_TRUE(lines()[0]["train/loss"].is_null());
}

TEST_F(MetricsFileTest, RefusesAFolderThatIsNotThere) {
  try {
    MetricsFile file(folder_ / "missing" / "metrics.jsonl", 0, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
  }
}

TEST_F(MetricsFileTest, SummaryHoldsEveryFieldOfTheContract) {
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
