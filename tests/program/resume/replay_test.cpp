// Replays of a step from the checkpoint before it, compared with the run's record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

/// Dropout, uneven accumulation, and log intervals that contain a checkpoint.
constexpr const char* kJob =
    "log: {interval: 3}\neval: {interval: 8}\ncheckpoint: {interval: 5, keep_last: 9, keep_best: 0}\nlr_scheduler: "
    "{type: cosine, warmup: 4}\n";

class Replay : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(gputrain(run_arguments()).exit_code, 0); }

  std::vector<std::string> run_arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"run",          job_,
                                       "--output-dir", run_,
                                       "--set",        "model.config.dropout=0.1",
                                       "--set",        "train.micro_batch_size=3",
                                       "--set",        "precision=fp32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Result replay(int step, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"replay", run_, "--step", std::to_string(step)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return gputrain(arguments);
  }
  /// All files of the run, or of another folder, with their content.
  std::map<std::string, std::string> content() const { return content_of(run_); }
  static std::map<std::string, std::string> content_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
    }
    return files;
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_, kJob), run_ = folder_ / "run";
};

TEST_F(Replay, MatchesARecordedStepAndChangesNothing) {
  const auto before = content();
  const Result result = replay(20, {"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_TRUE(json["equal"]);
  EXPECT_EQ(json["from"], 15);
  EXPECT_THAT(json["steps_compared"].get<std::vector<int>>(), ElementsAre(18, 20));
  EXPECT_GT(json["tensors_compared"], 20);
  const Result between = replay(12);
  EXPECT_EQ(between.exit_code, 0) << between.out;
  EXPECT_THAT(between.out, HasSubstr("replay   step 12 of " + run_ + ", from the checkpoint of step 10: 2 steps"));
  EXPECT_THAT(between.out, HasSubstr("metrics  equal at 1 recorded step, the last one 12: loss "));
  EXPECT_THAT(between.out, HasSubstr("there is no checkpoint of step 12"));
  EXPECT_EQ(content(), before);
}

/// The replay logs where the run logged, whatever log.interval is now.
TEST_F(Replay, ComparesStepsRecordedAtAnotherInterval) {
  ASSERT_EQ(gputrain(run_arguments({"--set", "log.interval=2"})).exit_code, 0);
  const Result result = replay(18);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("metrics  equal at 1 recorded step"));
}

TEST_F(Replay, LeavesMirrorAlone) {
  run_ = folder_ / "mirrored";
  const std::string mirror = folder_ / "mirror";
  ASSERT_EQ(gputrain(run_arguments({"--set", "checkpoint.mirror=" + mirror})).exit_code, 0);
  const auto before = content_of(mirror);
  ASSERT_THAT(before, Contains(Key(mirror + "/lock")));
  const Result result = replay(20);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(content_of(mirror), before);
}

TEST_F(Replay, FindsFirstNumberThatDiffers) {
  std::istringstream lines(read_file(run_ + "/metrics.jsonl"));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    auto object = nlohmann::ordered_json::parse(line);
    if (object["step"] == 18 && object["kind"] == "train")
      object["train/grad_norm"] = object["train/grad_norm"].get<double>() * (1 + 1e-15);
    text += object.dump() + "\n";
  }
  std::ofstream(run_ + "/metrics.jsonl", std::ios::trunc) << text;
  const Result result = replay(20);
  EXPECT_EQ(result.exit_code, 4) << result.out;
  EXPECT_THAT(result.out, HasSubstr("metrics  differ, first at step 18: train/grad_norm was "));
  EXPECT_THAT(result.out, HasSubstr("weights  equal: "));
  EXPECT_EQ(replay(17).exit_code, 2) << "nothing is recorded of 16 and 17";
}

TEST_F(Replay, FindsOtherDataByMetricsAndWeights) {
  std::string text = read_file(folder_ / "text.txt");
  std::replace(text.begin(), text.end(), 'c', 'm');
  text[0] = 'c';  // the vocabulary stays the same
  folder_.write("text.txt", text);
  const auto json = nlohmann::json::parse(replay(20, {"--json"}).out);
  EXPECT_FALSE(json["equal"]);
  EXPECT_EQ(json["metrics_differing"][0]["metric"], "train/grad_norm");
  EXPECT_EQ(json["metrics_differing"][0]["step"], 18);
  EXPECT_GT(json["tensors_differing"].size(), 10U);
}

TEST_F(Replay, SaysWhyItCannotBegin) {
  const Result early = replay(5);
  EXPECT_EQ(early.exit_code, 5);
  EXPECT_THAT(early.err, HasSubstr("no good checkpoint before step 5; the oldest one is of step 5"));
  const Result late = replay(21);
  EXPECT_EQ(late.exit_code, 2);
  EXPECT_THAT(late.err, HasSubstr("step 21 is after the last recorded step of the run, 20"));
  const Result silent = replay(11);
  EXPECT_EQ(silent.exit_code, 2);
  EXPECT_THAT(silent.err, HasSubstr("there is no record of steps 11 to 11"));
  EXPECT_THAT(silent.err, HasSubstr("--step 12"));
  EXPECT_EQ(replay(0).exit_code, 2);
  EXPECT_EQ(gputrain({"replay", folder_.path(), "--step", "3"}).exit_code, 2);
}

TEST_F(Replay, SkipsDamagedCheckpoint) {
  std::filesystem::resize_file(run_ + "/ckpt/step-00000015/model.safetensors", 100);
  const Result result = replay(18);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("from the checkpoint of step 10"));
  EXPECT_TRUE(std::filesystem::exists(run_ + "/ckpt/step-00000015"));
}

TEST_F(Replay, RefusesStepBeforeTheJobChanged) {
  ASSERT_EQ(gputrain(run_arguments({"--set", "train.max_steps=40", "--accept"})).exit_code, 0);
  const Result before = replay(18), after = replay(39);
  EXPECT_EQ(before.exit_code, 2);
  EXPECT_THAT(before.err, HasSubstr("train.max_steps: 20 -> 40"));
  EXPECT_THAT(before.err, HasSubstr("changed after this checkpoint"));
  EXPECT_EQ(after.exit_code, 0) << after.out << after.err;
}

TEST_F(Replay, NotesWhatHasChangedSince) {
  std::istringstream lines(read_file(run_ + "/ledger.jsonl"));
  std::string first;
  std::getline(lines, first);
  auto attempt = nlohmann::json::parse(first);
  attempt["threads"] = 1000;
  attempt["order"]["samples"] = 7;
  std::ofstream(run_ + "/ledger.jsonl", std::ios::trunc) << attempt.dump() << "\n";
  const Result result = replay(20);
  EXPECT_THAT(result.out, HasSubstr("note     threads was 1000 then and is "));
  EXPECT_THAT(result.out, HasSubstr("note     the training data had 7 samples then and has "));
}

TEST_F(Replay, NotesSettingsThatReorderSums) {
  ASSERT_EQ(gputrain(run_arguments({"--set", "train.micro_batch_size=2"})).exit_code, 0);
  EXPECT_THAT(replay(20).out, HasSubstr("note     train.micro_batch_size was 3 then and is 2 now: expect equality up"));
}

TEST_F(Replay, MatchesARunOnTwoRanks) {
  const std::string torchrun = GPUTRAIN_SOURCE_DIR "/.deps/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) {
    ASSERT_EQ(std::getenv("CI"), nullptr) << torchrun << " is missing";
    GTEST_SKIP() << torchrun << " is missing: run scripts/setup.sh --tests";
  }
  const auto on_two_ranks = [&](std::vector<std::string> arguments) {
    std::vector<std::string> all{torchrun,         "--no-python", "--nproc-per-node", "2",
                                 "--rdzv-backend", "c10d",        "--rdzv-endpoint",  "127.0.0.1:0",
                                 "--local-addr",   "127.0.0.1",   gputrain_path()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Program(all).wait();
  };
  run_ = folder_ / "two";
  const std::vector<std::string> arguments = run_arguments();
  ASSERT_EQ(ranks(2, job_, run_, {arguments.begin() + 4, arguments.end()}).exit_code, 0);
  const Result result = on_two_ranks({"replay", run_, "--step", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("note ")));
  EXPECT_THAT(replay(20).out, HasSubstr("note     world_size was 2 then and is 1 now"));
}

/// Only the last rank has the elements that differ, and the first one prints.
TEST_F(Replay, FindsWhatDiffersOnAnyRank) {
  run_ = folder_ / "shards";
  const std::vector<std::string> settings{"--set", "parallel.shard=parameters", "--set", "train.max_steps=2",
                                          "--set", "checkpoint.interval=1",     "--set", "log.interval=1"};
  const auto two_ranks = [](const std::vector<std::string>& arguments) {
    RankPrograms programs = start_ranks(2, arguments);
    return wait_for(programs);
  };
  const std::vector<std::string> step{"replay", run_, "--step", "2"};
  ASSERT_EQ(ranks(2, job_, run_, settings).exit_code, 0);
  const Result same = two_ranks(step);
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const std::string other = folder_ / "other", second = "/ckpt/step-00000002";
  std::filesystem::copy(run_, other, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(other + second);
  std::vector<std::string> changed = settings;
  changed.insert(changed.end(),
                 {"--set", "optimizer.groups=[{match: transformer.h.0.mlp.c_proj.bias, lr: 0.5x}]", "--accept"});
  const Result begun = ranks(2, job_, other, changed);
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  std::filesystem::remove_all(run_ + second);
  std::filesystem::copy(other + second, run_ + second, std::filesystem::copy_options::recursive);
  const Result result = two_ranks(step);
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("metrics  equal at 1 recorded step"));
  EXPECT_THAT(result.out, HasSubstr("weights  differ in 1 of "));
  EXPECT_THAT(result.out, HasSubstr(", first model transformer.h.0.mlp.c_proj.bias: "));
  EXPECT_THAT(result.out, HasSubstr("NOT equal"));
}

}  // namespace
}  // namespace gputrain::testing_support
