#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/ports.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

const std::string kTorchrun = GPUTRAIN_SOURCE_DIR "/.deps/bin/torchrun";

/// Runs `verb` on a job; if `output` is empty, on a run folder.
Result two_ranks(const std::string& job, const std::string& output, std::vector<std::string> more = {},
                 const std::string& verb = "run") {
  std::vector<std::string> arguments{kTorchrun,
                                     "--no-python",
                                     "--nproc-per-node",
                                     "2",
                                     "--rdzv-backend",
                                     "c10d",
                                     "--rdzv-endpoint",
                                     "127.0.0.1:0",
                                     "--local-addr",
                                     "127.0.0.1",
                                     gputrain_path(),
                                     verb,
                                     job};
  if (!output.empty()) arguments.insert(arguments.end(), {"--output-dir", output});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Program(arguments).wait();
}

class MultiRankRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(kTorchrun)) return;
    ASSERT_EQ(std::getenv("CI"), nullptr) << kTorchrun << " is missing";
    GTEST_SKIP() << kTorchrun << " is missing: run scripts/setup.sh --tests";
  }
  TemporaryFolder folder_;
};

TEST_F(MultiRankRun, MatchesOneRankUnderTorchrunIn64Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  const Result result = two_ranks(job, folder_ / "two");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 ranks"));
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

TEST_F(MultiRankRun, AccumulatesLikeOneLargeBatchIn64Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "four", "--set", "train.micro_batch_size=2"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "uneven", "--set", "train.micro_batch_size=3"}).exit_code,
            0);
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "four/metrics.jsonl", 1e-9);
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "uneven/metrics.jsonl", 1e-9);
}

TEST_F(MultiRankRun, MatchesFirstStepOfOneRankIn32Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n"), fp32 = "precision=fp32";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one", "--set", fp32}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "accumulated", "--set", fp32, "--set",
                      "train.micro_batch_size=3"})
                .exit_code,
            0);
  ASSERT_EQ(ranks(2, job, folder_ / "two", {"--set", fp32}).exit_code, 0);
  for (const std::string name : {"train/loss", "train/grad_norm"}) {
    const double expected = values(folder_ / "one/metrics.jsonl", name).at(0);
    for (const std::string other : {"accumulated", "two"}) {
      const double actual = values(folder_ / (other + "/metrics.jsonl"), name).at(0);
      EXPECT_NEAR(actual, expected, 1e-5 * expected) << name << " " << other;
    }
  }
}

TEST_F(MultiRankRun, ResumesWhatOneRankSaved) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "two"}).exit_code, 0);
  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  const Result result = ranks(2, job, folder_ / "two");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

TEST_F(MultiRankRun, WarnsOfTooManyRanksForAccumulation) {
  const std::vector<std::string> too_many{"--set", "train.gradient_accumulation_steps=8"};
  const Result result = ranks(2, write_gpt_job(folder_), folder_ / "run", too_many);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 micro x 16 seq x 2 ranks x 4 accumulation"));
  EXPECT_THAT(result.err, HasSubstr("train.gradient_accumulation_steps is more than a rank's share of the global "
                                    "batch: that is 4 samples"));
}

// The job sets only the micro-batch: more ranks, or another micro-batch, must divide the same global batch.
TEST_F(MultiRankRun, KeepsGlobalBatchOfOneRank) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  const std::vector<std::string> unnamed{"--set", "train.global_batch_size=null", "--set", "train.micro_batch_size=8"};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), unnamed.begin(), unnamed.end());
    return command;
  };
  ASSERT_EQ(gputrain(with({"run", job, "--output-dir", folder_ / "one"})).exit_code, 0);
  ASSERT_EQ(gputrain(with({"run", job, "--output-dir", folder_ / "two"})).exit_code, 0);
  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  const Result on_two = ranks(2, job, folder_ / "two", unnamed);
  ASSERT_EQ(on_two.exit_code, 0) << on_two.err;
  EXPECT_THAT(on_two.out, HasSubstr("128 tokens/step = 4 micro x 16 seq x 2 ranks x 1 accumulation"));
  EXPECT_THAT(on_two.err, HasSubstr("the global batch stays at 8 samples"));
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
  const Result alone = gputrain({"replay", folder_ / "two", "--step", "20"});
  EXPECT_THAT(alone.out, HasSubstr("gputrain launch --nproc-per-node 2 replay ... starts as many ranks"));
  EXPECT_EQ(two_ranks(folder_ / "two", "", {"--step", "20"}, "replay").exit_code, 0);
  const Result launched = gputrain({"launch", "--nproc-per-node", "2", "replay", folder_ / "two", "--step", "20"});
  EXPECT_EQ(launched.exit_code, 0) << launched.err;
  EXPECT_THAT(launched.out, HasSubstr("weights  equal"));

  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  const Result smaller = gputrain({"run", job, "--output-dir", folder_ / "two", "--set", "train.global_batch_size=null",
                                   "--set", "train.micro_batch_size=2"});
  ASSERT_EQ(smaller.exit_code, 0) << smaller.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
  EXPECT_EQ(gputrain({"data", "audit", folder_ / "two"}).exit_code, 0);

  const Result again = gputrain({"replay", folder_ / "two", "--step", "20"});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
}

// The checkpoint is saved between two lines of metrics.jsonl: it must contain both ranks' part of the next line's loss.
TEST_F(MultiRankRun, ResumesWithPartOfALogLine) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 20}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  ASSERT_EQ(ranks(2, job, folder_ / "two").exit_code, 0);
  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  ASSERT_EQ(ranks(2, job, folder_ / "two").exit_code, 0);
  const auto expected = losses_of(folder_ / "one"), actual = losses_of(folder_ / "two");
  ASSERT_EQ(actual.size(), 1U);
  EXPECT_NEAR(actual[0], expected[0], 1e-9);
}

TEST_F(MultiRankRun, RefusesHalfSetEnvironment) {
  Program program({gputrain_path(), "run", write_gpt_job(folder_)}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
}

/// Starts one rank for each of these settings, and returns their results.
std::vector<Result> started_by_hand(const std::string& job, const std::string& output,
                                    const std::vector<std::string>& settings) {
  const std::string port = std::to_string(testing::free_port()), size = std::to_string(settings.size());
  RankPrograms programs;
  for (size_t rank = 0; rank < settings.size(); ++rank) {
    const std::string number = std::to_string(rank);
    programs.push_back(std::make_unique<Program>(
        std::vector<std::string>{gputrain_path(), "run", job, "--output-dir", output, "--set", settings[rank]},
        std::map<std::string, std::string>{{"RANK", number},
                                           {"LOCAL_RANK", number},
                                           {"WORLD_SIZE", size},
                                           {"LOCAL_WORLD_SIZE", size},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", port}}));
  }
  std::vector<Result> results;
  for (auto& program : programs) results.push_back(program->wait());
  return results;
}

class SharedMistake : public ::testing::TestWithParam<std::pair<std::string, int>> {};
INSTANTIATE_TEST_SUITE_P(Mistakes, SharedMistake,
                         ::testing::Values(std::pair("trian.max_steps=3", 2), std::pair("device=cuda", 6),
                                           std::pair("data.train.path=/nowhere", 3),
                                           std::pair("checkpoint.resume=must", 5)),
                         [](const auto& entry) {
                           std::string name = entry.param.first;  // a setting
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST_P(SharedMistake, IsReportedOnceByRankZero) {
  const auto& [setting, code] = GetParam();
  if (setting == "device=cuda" && std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU here";
  const TemporaryFolder folder;
  const auto results = started_by_hand(write_gpt_job(folder), folder / "run", {setting, setting, setting});
  for (const Result& result : results) EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_NE(results[0].err, "");
  EXPECT_EQ(results[1].err + results[2].err, "");
}

void expect_refusal_by_rank_zero(const std::vector<Result>& results, int code, const std::string& words) {
  for (const Result& result : results) EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_THAT(results[0].err, HasSubstr(words));
  for (size_t rank = 1; rank < results.size(); ++rank) EXPECT_EQ(results[rank].err, "") << rank;
}

TEST(RankErrorReport, ComesFromRankZeroForUnusableRunFolder) {
  const TemporaryFolder folder;
  const std::string in_its_place = folder.write("run", "");
  const std::vector<std::string> five(5, "seed=1");  // some hear of it from ranks other than 0
  const auto results = started_by_hand(write_gpt_job(folder), in_its_place, five);
  expect_refusal_by_rank_zero(results, 6, "cannot use the run folder");
}

TEST(RankErrorReport, ComesFromRankZeroForChangedSettings) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const std::string changed = "optimizer.lr=0.5";
  const auto results = started_by_hand(job, folder / "run", {changed, changed, changed});
  expect_refusal_by_rank_zero(results, 2, "these settings changed since the checkpoint");
}

TEST(RankErrorReport, ReachesTheOtherRanks) {
  const TemporaryFolder folder;
  const auto results = started_by_hand(write_gpt_job(folder), folder / "run", {"seed=1", "trian.max_steps=3"});
  for (const Result& result : results) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("unknown key 'trian'"));
  }
  EXPECT_THAT(results[0].err, HasSubstr("rank 1 on"));
}

TEST(RankErrorReport, ComesWhenOtherRanksNeverDo) {
  const TemporaryFolder folder;
  Program alone({gputrain_path(), "run", write_gpt_job(folder), "--set", "trian.max_steps=3"},
                {{"RANK", "1"},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", std::to_string(testing::free_port())}});
  const Result result = alone.wait(60);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown key 'trian'"));
}

}  // namespace
}  // namespace gputrain::testing_support
