// A changed job: what is offered, and `gputrain run --new`, which starts over and keeps the earlier run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/endless_run.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

class StartOver : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run().exit_code, 0); }

  Result run(const Words& more = {}, const Words& before = {}) const {
    Words words = before;
    for (const std::string& word : Words{"run", job_, "--output-dir", run_}) words.push_back(word);
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words);
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 5, keep_last: 9}\n");
  std::string run_ = folder_ / "run";
};

const Words kOtherRate{"--set", "optimizer.lr=1e-4"}, kOtherModel{"--set", "model.config.n_layer=2"};

Words operator+(Words words, const std::string& word) {
  words.push_back(word);
  return words;
}

TEST_F(StartOver, IsOfferedForChangesOfEachKind) {
  const std::string other_folder = "--output-dir OTHER trains beside it",
                    over = "--new starts over, and keeps this run as " + run_ + ".1";
  const Result rate = run(kOtherRate), model = run(kOtherModel);
  EXPECT_EQ(rate.exit_code, 2);
  EXPECT_THAT(rate.err, AllOf(HasSubstr("optimizer.lr: 0.003 -> 0.0001"), HasSubstr("--accept goes on"),
                              HasSubstr(over), HasSubstr(other_folder)));
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, AllOf(HasSubstr("model.config.n_layer: 1 -> 2"), Not(HasSubstr("--accept")), HasSubstr(over),
                               HasSubstr(other_folder)));
  const std::string text = read_file(folder_ / "text.txt");
  folder_.write("text.txt", text + text);
  const Result data = run({"--set", "checkpoint.resume=" + run_ + "/ckpt/step-00000010"});
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.err,
              AllOf(HasSubstr("the training data has changed"), HasSubstr("--accept to go on"), HasSubstr(over)));
}

TEST_F(StartOver, KeepsTheEarlierRunWholeAndGoesOnWithTheNewOne) {
  const std::string curve = timeless_metrics(run_ + "/metrics.jsonl");
  const Result over = run(kOtherModel + "--new");
  ASSERT_EQ(over.exit_code, 0) << over.err;
  EXPECT_EQ(timeless_metrics(run_ + ".1/metrics.jsonl"), curve);
  EXPECT_TRUE(fs::exists(run_ + ".1/ckpt/step-00000020"));
  EXPECT_EQ(losses_of(run_).size(), 20U);
  EXPECT_NE(losses_of(run_), losses_of(run_ + ".1"));
  const Result again = run(kOtherModel);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out,
              AllOf(HasSubstr("resume  step 20"), HasSubstr("raise train.max_steps and add --accept to go on")));
  // Also by the job that the run has kept, which does not start over.
  const Result kept = gputrain({"run", run_ + "/job.resolved.yaml", "--output-dir", run_});
  EXPECT_THAT(kept.out, HasSubstr("resume  step 20")) << kept.err;
}

TEST_F(StartOver, LeavesBothRunsToBeListedAuditedReplayedAndCompared) {
  ASSERT_EQ(run(kOtherModel + "--new").exit_code, 0);
  const Result listed = gputrain({"ckpt", "ls", run_});
  EXPECT_THAT(listed.out,
              AllOf(HasSubstr("4 checkpoints"), HasSubstr("of an earlier run"), HasSubstr(run_ + ".1/ckpt")));
  fs::rename(run_ + ".1", run_ + ".3");  // others may be gone
  EXPECT_THAT(gputrain({"ckpt", "ls", run_}).out, HasSubstr(run_ + ".3/ckpt"));
  fs::rename(run_ + ".3", run_ + ".1");
  const auto json = nlohmann::json::parse(gputrain({"ckpt", "ls", run_, "--json"}).out);
  EXPECT_EQ(json["earlier"], nlohmann::json::array({run_ + ".1/ckpt"}));
  for (const std::string& each : {run_, run_ + ".1"}) {
    EXPECT_EQ(gputrain({"data", "audit", each}).exit_code, 0) << each;
    const Result replay = gputrain({"replay", each, "--step", "8"});
    EXPECT_EQ(replay.exit_code, 0) << each << replay.out << replay.err;
  }
  EXPECT_THAT(gputrain({"compare", run_, run_ + ".1"}).out, HasSubstr("model.config.n_layer"));
}

TEST_F(StartOver, OnSeveralRanksHappensOnceForAllAttempts) {
  const Words two{"launch", "--nproc-per-node", "2"};
  const Result over = run({"--new", "--set", "optimizer.lr=1e-4", "--set", "train.max_steps=10"}, two);
  ASSERT_EQ(over.exit_code, 0) << over.err;
  EXPECT_THAT(over.out, HasSubstr("resume  none found"));
  EXPECT_TRUE(fs::exists(run_ + ".1/ckpt/step-00000020"));
  const Result on = run({"--set", "optimizer.lr=1e-4", "--accept"}, two);
  EXPECT_THAT(on.out, HasSubstr("resume  step 10 from ")) << on.err;
  EXPECT_FALSE(fs::exists(run_ + ".2"));
  EXPECT_EQ(gputrain({"data", "audit", run_}).exit_code, 0);
}

TEST_F(StartOver, OfAStoppedRunGoesOnWithoutTheOption) {
  Program endless({gputrain_path(), "run", job_, "--output-dir", run_, "--new", "--set", "train.max_steps=1000000"});
  ASSERT_TRUE(endless.prints("step    5/"));
  endless.signal(SIGTERM);
  const Result stopped = endless.wait();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  const size_t next = stopped.out.find("\nnext ");
  ASSERT_NE(next, std::string::npos) << stopped.out;
  EXPECT_THAT(stopped.out.substr(next), AllOf(HasSubstr("goes on from step"), Not(HasSubstr("--new"))));
}

TEST_F(StartOver, ChangesNothingInADryRunAndRefusesContradictions) {
  const Result dry = run(kOtherModel + "--new" + "--dry-run");
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("resume  off (--new"));
  const Result contrary = run({"--new", "--set", "checkpoint.resume=must"});
  EXPECT_EQ(contrary.exit_code, 2);
  EXPECT_THAT(contrary.err, HasSubstr("--set checkpoint.resume=must says otherwise"));
  EXPECT_EQ(run({"--new", "--accept"}).exit_code, 2);
  EXPECT_FALSE(fs::exists(run_ + ".1"));
}

}  // namespace
}  // namespace gputrain::testing_support
