// checkpoint.mirror: a second copy of every checkpoint, and a run that resumes from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class MirroredRun : public ::testing::Test {
 protected:
  std::vector<std::string> run(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"run",           job_,    "--output-dir",
                                       folder_ / "run", "--set", "checkpoint.mirror=" + mirror_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Starts the run, and kills it before it saves.
  void begin(const std::string& resume, const std::string& told) const {
    auto command = run({"--set", "checkpoint.resume=" + resume, "--set", "checkpoint.interval=null"});
    command.insert(command.begin(), gputrain_path());
    Program program(command);
    ASSERT_TRUE(program.prints(told));
    program.signal(SIGKILL);
    program.wait();
  }
  void take_mirror_away() const { fs::rename(mirror_, mirror_ + ".away"); }
  void bring_mirror_back() const {
    fs::remove_all(mirror_);
    fs::rename(mirror_ + ".away", mirror_);
  }
  std::string ledger() const { return read_file(folder_ / "run/ledger.jsonl"); }
  static std::string step(const std::string& folder, const char* number) { return folder + "/step-000000" + number; }

  const TemporaryFolder folder_;
  const std::string mirror_ = folder_ / "far/mirror", ckpt_ = folder_ / "run/ckpt";
  const std::string job_ =
      write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: null}\ncheckpoint: {interval: 5, keep_last: 3}\n");
};

TEST_F(MirroredRun, StoresLastCheckpointTwiceAndRecordsIt) {
  const Result result = gputrain(run());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  mirror " + mirror_));
  EXPECT_EQ(gputrain({"ckpt", "verify", mirror_}).exit_code, 0);
  EXPECT_EQ(read_file(step(mirror_, "20") + "/model.safetensors"), read_file(step(ckpt_, "20") + "/model.safetensors"));
  EXPECT_THAT(ledger(), HasSubstr("\"kind\":\"mirror\""));
  EXPECT_EQ(gputrain({"data", "audit", folder_ / "run"}).exit_code, 0);
}

TEST_F(MirroredRun, ResumesFromMirrorWhenRunFolderIsLost) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  const std::string weights = read_file(folder_ / "run/model.safetensors");
  fs::remove_all(folder_ / "run");
  fs::remove_all(step(mirror_, "20"));
  const Result result = gputrain(run());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("from " + mirror_ + "/step-000000"));
  EXPECT_THAT(result.out, HasSubstr("the mirror's"));
  EXPECT_EQ(read_file(folder_ / "run/model.safetensors"), weights);
  EXPECT_TRUE(fs::exists(step(ckpt_, "20")));
}

TEST_F(MirroredRun, ResumesFromNewestGoodOfBothFolders) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  fs::resize_file(step(ckpt_, "20") + "/model.safetensors", 100);
  const Result torn = gputrain(run());
  EXPECT_THAT(torn.out, HasSubstr("resume  step 20 from " + mirror_));
  EXPECT_THAT(torn.err, HasSubstr("checkpoint skipped: " + step(ckpt_, "20")));
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "run"}).exit_code, 0);  // two good copies again
  fs::remove_all(step(mirror_, "20"));
  EXPECT_THAT(gputrain(run()).out, HasSubstr("resume  step 20 from " + ckpt_));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));  // made up for
  std::fstream(step(mirror_, "20") + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('\x7f');
  fs::remove_all(step(ckpt_, "20"));
  const Result result = gputrain(run());  // by sizes, the mirror's is the newest; by hashes, it is bad
  EXPECT_THAT(result.out, HasSubstr("resume  step 15 from " + ckpt_)) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("checkpoint skipped"));
  EXPECT_TRUE(fs::exists(step(mirror_, "20") + ".bad"));
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(MirroredRun, SetsAbandonedBranchAsideInMirrorToo) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  begin(step(ckpt_, "10"), "resume  step 10");
  EXPECT_THAT(gputrain(run()).out, HasSubstr("resume  step 10"));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
  EXPECT_TRUE(fs::exists(step(mirror_ + "/branch-2", "20")));
  const auto over = run({"--set", "checkpoint.resume=never", "--set", "train.max_steps=5"});
  EXPECT_EQ(gputrain(over).exit_code, 0);
  EXPECT_TRUE(fs::exists(step(mirror_ + "/branch-2", "20")));
  EXPECT_THAT(gputrain(run({"--accept"})).out, HasSubstr("resume  step 5 from " + ckpt_ + "/branch-3"));
}

TEST_F(MirroredRun, IgnoresStaleMirrorAfterResumeFromPath) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  take_mirror_away();
  begin(step(ckpt_, "10"), "resume  step 10");
  bring_mirror_back();
  const Result result = gputrain(run());
  EXPECT_THAT(result.out, HasSubstr("resume  step 10 from " + ckpt_)) << result.err;
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
  fs::remove_all(folder_ / "run");  // the mirror knows enough to go on from
  EXPECT_THAT(gputrain(run()).out, HasSubstr("resume  step 20 from " + mirror_ + "/branch-2"));
}

class StaleLedger : public MirroredRun, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(LostOrOlder, StaleLedger, ::testing::Bool(),
                         [](const auto& entry) { return entry.param ? "Older" : "Lost"; });

TEST_P(StaleLedger, DoesNotReviveAbandonedBranch) {
  ASSERT_EQ(gputrain(run({"--set", "train.max_steps=5"})).exit_code, 0);
  ASSERT_EQ(gputrain(run({"--accept", "--set", "checkpoint.resume=" + ckpt_ + "/latest"})).exit_code, 0);
  const std::string earlier = folder_ / "ledger.jsonl";
  fs::copy(folder_ / "run/ledger.jsonl", earlier);
  take_mirror_away();
  ASSERT_EQ(
      gputrain(run({"--accept", "--set", "checkpoint.resume=" + step(ckpt_, "10"), "--set", "train.max_steps=15"}))
          .exit_code,
      0);
  bring_mirror_back();
  fs::remove(folder_ / "run/ledger.jsonl");
  if (GetParam()) fs::rename(earlier, folder_ / "run/ledger.jsonl");
  EXPECT_THAT(gputrain(run({"--accept"})).out, HasSubstr("resume  step 15 from " + ckpt_));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
}

TEST_F(MirroredRun, RefusesMirrorInARunBeforeMovingFiles) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  for (const bool launched : {false, true}) {
    auto command = run({"--set", "checkpoint.resume=never", "--set", "checkpoint.mirror=" + ckpt_});
    if (launched) command.insert(command.begin(), {"launch", "--nproc-per-node", "1"});
    EXPECT_EQ(gputrain(command).exit_code, 2);
    EXPECT_TRUE(fs::exists(step(ckpt_, "20")));
    EXPECT_FALSE(fs::exists(folder_ / "run.1"));
  }
  const Result result =
      gputrain({"run", job_, "--output-dir", folder_ / "another", "--set", "checkpoint.mirror=" + ckpt_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("checkpoint.mirror is the folder of another run"));
}

TEST_F(MirroredRun, IgnoresStaleMirrorAfterStartingOver) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  take_mirror_away();
  begin("never", "resume  off");
  bring_mirror_back();
  EXPECT_THAT(gputrain(run()).out, HasSubstr("resume  none found"));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
}

TEST_F(MirroredRun, IgnoresStaleMirrorAfterLauncherStartsOver) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  take_mirror_away();
  std::vector<std::string> command{"launch", "--nproc-per-node", "1"};
  for (const auto& word : run({"--set", "checkpoint.resume=never", "--set", "train.max_steps=5"}))
    command.push_back(word);
  ASSERT_EQ(gputrain(command).exit_code, 0);
  bring_mirror_back();
  EXPECT_THAT(gputrain(run({"--accept"})).out, HasSubstr("resume  step 5 from " + ckpt_));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
}

TEST_F(MirroredRun, StartsOverUnderLauncher) {
  ASSERT_EQ(gputrain(run()).exit_code, 0);
  std::vector<std::string> command{"launch", "--nproc-per-node", "1"};
  for (const auto& word : run({"--set", "checkpoint.resume=never"})) command.push_back(word);
  const Result result = gputrain(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  none found"));
  EXPECT_TRUE(fs::exists(step(mirror_, "20")));
}

TEST_F(MirroredRun, EndsWellWithoutMirrorAndSaysWhyOnce) {
  folder_.write("far", "a file where a folder should be");
  const Result result = gputrain(run());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t first = result.err.find("no second copy of step");
  EXPECT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("no second copy of step", first + 1), std::string::npos) << result.err;
  EXPECT_THAT(ledger(), HasSubstr("\"kind\":\"mirror_failed\""));
  EXPECT_THAT(ledger(), Not(HasSubstr("try: ")));  // hints are only for people
  EXPECT_EQ(gputrain(run()).exit_code, 0);
}

TEST_F(MirroredRun, MirrorsTheCheckpointOfAStop) {
  Program program({gputrain_path(), "run", job_, "--output-dir", folder_ / "run", "--set",
                   "checkpoint.mirror=" + mirror_, "--set", "checkpoint.interval=null", "--set",
                   "train.max_steps=1000000"});
  ASSERT_TRUE(program.prints("step    20/"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
  ASSERT_FALSE(fs::is_empty(mirror_));
  EXPECT_EQ(gputrain({"ckpt", "verify", mirror_}).exit_code, 0);
}

TEST_F(MirroredRun, WritesNothingWhereMirrorHasGone) {
  Program program({gputrain_path(), "run", job_, "--output-dir", folder_ / "run", "--set",
                   "checkpoint.mirror=" + mirror_, "--set", "checkpoint.interval=null", "--set",
                   "train.max_steps=1000000"});
  ASSERT_TRUE(program.prints("step    20/"));
  fs::rename(mirror_, mirror_ + ".gone");
  program.signal(SIGTERM);
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_FALSE(fs::exists(mirror_));
  EXPECT_THAT(result.err, HasSubstr("has been moved, removed or unmounted"));
  EXPECT_THAT(ledger(), HasSubstr("the mirror is away"));
}

TEST_F(MirroredRun, RefusesMirrorOfAnotherRunOrItself) {
  for (const std::string& within : {ckpt_, folder_ / "run", folder_ / "run/second"}) {
    const Result result = gputrain(run({"--set", "checkpoint.mirror=" + within}));
    EXPECT_EQ(result.exit_code, 2) << within;
    EXPECT_THAT(result.err, HasSubstr("checkpoint.mirror is inside the run folder"));
  }
  Program other({gputrain_path(), "run", job_, "--output-dir", folder_ / "other", "--set",
                 "checkpoint.mirror=" + mirror_, "--set", "train.max_steps=1000000"});
  ASSERT_TRUE(other.prints("step    20/"));
  const Result refused = gputrain(run());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("run under way"));
}

}  // namespace
}  // namespace gputrain::testing_support
