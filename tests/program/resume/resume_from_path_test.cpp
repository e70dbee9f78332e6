// Going on from a checkpoint chosen by path: an older one of the run, one of a branch that was left, another run's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

TEST(ResumeFromPath, LeavesNewerCheckpointsForGood) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  Program again({gputrain_path(), "run", job, "--output-dir", folder / "run", "--set",
                 "checkpoint.resume=" + (folder / "run/ckpt/step-00000010"), "--set", "checkpoint.interval=null",
                 "--set", "log.interval=1", "--set", "checkpoint.keep_best=0"});
  ASSERT_TRUE(again.prints("resume  step 10"));
  again.signal(SIGKILL);
  again.wait();
  EXPECT_THAT(gputrain(run).out, HasSubstr("resume  step 10"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000020"));
  EXPECT_EQ(std::filesystem::read_symlink(folder / "run/ckpt/latest"), "branch-2/step-00000020");
  EXPECT_THAT(gputrain(run).out, HasSubstr("resume  step 20 from " + (folder / "run/ckpt/branch-2/step-00000020")));
}

TEST(Resume, ByThePathOfTheNewestGoesOnInItsBranch) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const Result on = gputrain({"run", job, "--output-dir", folder / "run", "--accept", "--set", "train.max_steps=25",
                              "--set", "checkpoint.resume=" + (folder / "run/ckpt/latest")});
  EXPECT_THAT(on.out, HasSubstr("resume  step 20 from ")) << on.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000025"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/ckpt/branch-2"));
}

TEST(Resume, BeginsNoBranchIfItIsRefused) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::ofstream(folder / "text.txt", std::ios::app) << std::string(200, 'e');
  const Result refused = gputrain({"run", job, "--output-dir", folder / "run", "--set",
                                   "checkpoint.resume=" + (folder / "run/ckpt/step-00000010")});
  EXPECT_EQ(refused.exit_code, 2) << refused.out << refused.err;
  EXPECT_THAT(read_file(folder / "run/ledger.jsonl"), ::testing::Not(HasSubstr("\"branch\":2")));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/ckpt/branch-2"));
}

/// Runs a job from a checkpoint to this number of steps.
Result run_from(const TemporaryFolder& folder, const std::string& checkpoint, const std::string& steps) {
  return gputrain({"run", folder / "job.yaml", "--output-dir", folder / "run", "--accept", "--set",
                   "checkpoint.resume=" + checkpoint, "--set", "train.max_steps=" + steps});
}

TEST(ResumeFromPath, KeepsLaterSavesDespiteLostLedgerEntry) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 3}\n"),
                    ledger = folder / "run/ledger.jsonl";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::copy(ledger, ledger + ".before");
  ASSERT_EQ(run_from(folder, folder / "run/ckpt/step-00000015", "20").exit_code, 0);
  ASSERT_EQ(run_from(folder, folder / "run/ckpt/latest", "25").exit_code, 0);
  std::filesystem::rename(ledger + ".before", ledger);
  EXPECT_THAT(run_from(folder, "auto", "30").out, HasSubstr("resume  step 25 from "));
}

TEST(Resume, RefusesToStartOverWithOtherBranches) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run"}).exit_code, 0);
  std::ofstream(folder / "run/ledger.jsonl", std::ios::app) << R"({"kind":"started_over","branch":2})"
                                                            << "\n";
  const Result result = run_from(folder, "auto", "30");
  EXPECT_EQ(result.exit_code, 5) << result.out;
  EXPECT_THAT(result.err, HasSubstr("none of the branch that the run's ledger names last"));
}

TEST(Resume, FromAnOldBranchUsesOnlyThatBranch) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\nlog: {interval: 1}\n"),
                    ckpt = folder / "run/ckpt";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  ASSERT_EQ(run_from(folder, ckpt + "/step-00000010", "35").exit_code, 0);
  Program undone({gputrain_path(), "run", job, "--output-dir", folder / "run", "--accept", "--set",
                  "checkpoint.resume=" + ckpt + "/step-00000020", "--set", "train.max_steps=1000000", "--set",
                  "checkpoint.interval=null"});
  ASSERT_TRUE(undone.prints("step    21/"));
  undone.signal(SIGKILL);
  undone.wait();
  EXPECT_THAT(run_from(folder, "auto", "30").out, HasSubstr("resume  step 20 from " + ckpt + "/branch-3"));
  for (const char* stays : {"step-00000005", "step-00000020", "branch-2/step-00000035"})
    EXPECT_TRUE(std::filesystem::exists(ckpt + "/" + stays)) << stays;
}

TEST(ResumeFromPath, RemembersForeignChoiceUntilItIsSaved) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n"),
                    chosen = folder / "other/ckpt/step-00000010";
  for (const char* run : {"other", "run"}) ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / run}).exit_code, 0);
  std::ofstream(folder / "run/ledger.jsonl", std::ios::app)
      << nlohmann::json{{"kind", "attempt"}, {"attempt", 2}, {"branch", 2}, {"from", chosen}}.dump() << "\n";
  std::filesystem::rename(chosen, chosen + ".away");
  const Result refused = run_from(folder, "auto", "30");
  EXPECT_EQ(refused.exit_code, 5) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr(chosen));
  std::filesystem::rename(chosen + ".away", chosen);
  EXPECT_THAT(run_from(folder, "auto", "30").out, HasSubstr("resume  step 10 from " + chosen));
  EXPECT_THAT(run_from(folder, "must", "35").out, HasSubstr("resume  step 30 from " + (folder / "run/ckpt/branch-2")));
}

TEST(Resume, FromAnotherRunKeepsItsOwnCheckpoints) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  for (const char* run : {"other", "run"}) ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / run}).exit_code, 0);
  const Result result =
      gputrain({"run", job, "--output-dir", folder / "run", "--accept", "--set",
                "checkpoint.resume=" + (folder / "other/ckpt/step-00000010"), "--set", "checkpoint.interval=null",
                "--set", "optimizer.lr=1e30", "--set", "train.nonfinite=rollback", "--set", "train.max_rollbacks=1"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("back    to the weights of step 10"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/ckpt/step-00000005"));
}

TEST(ResumeFromPath, SaysWhereACheckpointIs) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto resume_from = [&](const std::string& from) {
    const Result result =
        gputrain({"run", job, "--output-dir", folder / "other", "--set", "checkpoint.resume=" + from});
    EXPECT_EQ(result.exit_code, 5) << from;
    return result.err;
  };
  EXPECT_THAT(resume_from(folder / "run"), HasSubstr("run/ckpt/latest is this run's newest"));
  EXPECT_THAT(resume_from(folder / "run/ckpt"), HasSubstr("run/ckpt/latest is the newest one here"));
  EXPECT_THAT(resume_from("false"),
              HasSubstr("there is no such checkpoint\n  try: auto, must, never, or a checkpoint"));
}

}  // namespace
}  // namespace gputrain::testing_support
