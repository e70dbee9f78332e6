#include <gmock/gmock.h>

#include "gputrain/monitor/log_spec.hpp"
#include "monitor/tracked_run.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;

namespace fs = std::filesystem;

class Wandb : public TrackedRun {
 protected:
  void SetUp() override { GPUTRAIN_NEED_REFERENCE("wandb"); }
  std::unique_ptr<Recorder> begin(int64_t step = 0, int64_t evaluated_step = 0, const WandbSpec& spec = {}) {
    return TrackedRun::begin({"wandb", std::make_shared<WandbSpec>(spec)}, step, evaluated_step);
  }
  /// The only run's file.
  fs::path file() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(run_folder() / "wandb")) found.push_back(entry.path());
    EXPECT_EQ(found.size(), 1U);
    EXPECT_THAT(found.at(0).filename().string(), ::testing::MatchesRegex("offline-run-[0-9]+_[0-9]+-small-3f9a"));
    return found.at(0) / "run-small-3f9a.wandb";
  }
  json found() const { return found_by("wandb_reference.py", file()); }
  /// Steps with what stands there under `name`.
  static json curve(const json& all, const std::string& name) {
    json points = json::array();
    for (const json& row : all["rows"])
      if (row.contains(name)) points.push_back({row["_step"], row[name]});
    return points;
  }
};

TEST_F(Wandb, ReadsRowsSettingsAndTheEnd) {
  settings_["vars.long"] = std::string(100'000, 'x');  // more than three blocks of the file
  auto run = begin(0, 0, {.project = "corpus", .entity = "team", .name = "first"});
  train(*run, 10, 2.5);
  evaluate(*run, 10, 1.25);
  for (int64_t step = 11; step < 500; ++step) train(*run, step, 1);
  end(std::move(run), "stopped", 143);
  const json all = found();
  EXPECT_EQ(all["run"], json({"small-3f9a", "corpus", "team", "first"}));
  EXPECT_EQ(all["config"]["optimizer.lr"], 1e-3);
  EXPECT_EQ(all["config"]["env.MY_API_KEY"], "***");
  EXPECT_EQ(all["config"]["vars.long"], settings_["vars.long"]);
  EXPECT_EQ(all["rows"].size(), 490U);
  EXPECT_EQ(all["rows"][0]["train/loss"], 2.5);
  EXPECT_EQ(all["rows"][0]["val/loss"], 1.25);
  EXPECT_EQ(all["summary"]["_step"], 499);
  EXPECT_EQ(all["summary"]["val/loss"], 1.25);
  EXPECT_EQ(all["exit_code"], 143);
  for (size_t at = 0; at < all["numbers"].size(); ++at) EXPECT_EQ(all["numbers"][at], at + 1);
}

TEST_F(Wandb, HasEachStepOnceAfterAResume) {
  auto killed = begin();
  for (const int64_t step : {10, 20, 30}) {
    train(*killed, step, static_cast<double>(step));
    evaluate(*killed, step, static_cast<double>(step));
  }
  end(std::move(killed), "failed", 1);
  std::ofstream(file(), std::ios::binary | std::ios::app) << "torn";
  std::ofstream(file().string() + ".synced") << "";
  run_id_ = "small/other";       // that of a job with other settings
  auto resumed = begin(20, 10);  // the checkpoint was saved before the evaluation of its step
  evaluate(*resumed, 20, 21);
  train(*resumed, 30, 31);
  end(std::move(resumed));
  const json all = found();
  EXPECT_EQ(all["run"][0], "small-3f9a");
  EXPECT_EQ(curve(all, "train/loss"), json({{10, 10}, {20, 20}, {30, 31}}));
  EXPECT_EQ(curve(all, "val/loss"), json({{10, 10}, {20, 21}}));
  EXPECT_EQ(all["rows"].size(), 3U);
  EXPECT_EQ(all["kinds"], json({"header", "run", "history", "history", "history", "summary", "exit"}));
  EXPECT_EQ(all["exit_code"], 0);
  EXPECT_FALSE(fs::exists(file().string() + ".synced"));
}

TEST_F(Wandb, KeepsTextsOverAResume) {
  auto killed = begin();
  train(*killed, 10, 1);
  killed->log({.step = 10, .kind = "sample", .texts = {{"sample", "To be\n\xff"}}});
  train(*killed, 20, 1);
  end(std::move(killed), "failed", 1);
  end(begin(10, 10));
  const json all = found();
  ASSERT_EQ(all["rows"].size(), 1U);
  const json& row = all["rows"][0];
  EXPECT_EQ(row["sample"], "To be\n\uFFFD");
  EXPECT_EQ(row["train/loss"], 1);
}

TEST_F(Wandb, KeepsTextsOfAStepThatIsEvaluatedAgain) {
  auto killed = begin();
  evaluate(*killed, 10, 1);
  killed->log({.step = 10, .kind = "sample", .texts = {{"sample", "say c", "cc", true}}});
  end(std::move(killed), "failed", 1);
  end(begin(10, 0));  // the checkpoint was saved before the evaluation of its step
  const json all = found();
  ASSERT_EQ(all["rows"].size(), 1U);
  EXPECT_EQ(all["rows"][0]["sample"], "say c\n\nassistant: cc");
  EXPECT_FALSE(all["rows"][0].contains("val/loss"));
}

TEST_F(Wandb, LeavesRunsOfOtherProgramsAlone) {
  const fs::path other = run_folder() / "wandb/offline-run-20991231_000000-x/run-x.wandb";
  fs::create_directories(other.parent_path());
  std::ofstream(other) << ":W&B and more";
  end(begin());
  EXPECT_EQ(fs::file_size(other), 13U);
  EXPECT_EQ(std::distance(fs::directory_iterator(run_folder() / "wandb"), fs::directory_iterator()), 2);
}

TEST_F(Wandb, GoesOnWithoutADiskAndSaysSoOnce) {
  auto run = begin();
  fs::remove_all(run_folder() / "wandb");
  ::testing::internal::CaptureStderr();
  train(*run, 10, 1);
  train(*run, 20, 1);
  end(std::move(run));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, ::testing::HasSubstr("cannot append; training continues, but `wandb sync` lacks metrics"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

}  // namespace
}  // namespace gputrain::monitor
