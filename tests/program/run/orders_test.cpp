// Orders to a run over pauses, kills, changed jobs and replays.
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/endless_run.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Orders : public ::testing::Test {
 protected:
  Result order(std::vector<std::string> words) const {
    words.insert(words.begin(), {"ctl", run_});
    return gputrain(words);
  }
  /// Starts the endless job and waits for its first steps.
  std::unique_ptr<Program> started(std::vector<std::string> more = {}) const {
    auto program = std::make_unique<Program>(endless(folder_, std::move(more)));
    EXPECT_TRUE(program->prints("step    2"));
    return program;
  }
  std::unique_ptr<Program> paused(std::vector<std::string> more = {}) const {
    auto program = started(std::move(more));
    EXPECT_EQ(order({"pause"}).exit_code, 0);
    EXPECT_TRUE(program->prints("pauses after step"));
    return program;
  }
  void set_rate(Program& program, const std::string& rate) const {
    program.forget_output();  // of an order before
    EXPECT_EQ(order({"set", "optimizer.lr=" + rate}).exit_code, 0);
    EXPECT_TRUE(program.prints("order   optimizer.lr")) << rate;
  }
  static void kill(Program& program) {
    program.signal(SIGKILL);
    program.wait();
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

using RateOrder = Orders;

TEST_F(RateOrder, EndsWithAnotherRateOfTheJob) {
  auto first = started();
  set_rate(*first, "0.00025");
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  first->wait();
  const std::string last = std::to_string(summary(run_)["step"].get<int64_t>() + 20);
  Program again(endless(folder_, {"--set", "optimizer.lr=0.0005", "--set", "train.max_steps=" + last, "--accept"}));
  const Result result = again.wait();
  EXPECT_THAT(result.out, AllOf(HasSubstr(" lr 5e-4 "), Not(HasSubstr("set by an order"))));
  EXPECT_THAT(result.err, HasSubstr("the job's rate counts again"));
}

TEST_F(RateOrder, IsARateWhateverTheBatchIs) {
  auto first = started({"--set", "optimizer.lr_base_batch_size=8"});
  set_rate(*first, "0.00025");
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  first->wait();
  Program again(
      endless(folder_, {"--set", "optimizer.lr_base_batch_size=8", "--set", "train.global_batch_size=16", "--accept"}));
  EXPECT_TRUE(again.prints("set by an order"));
  EXPECT_TRUE(again.prints(" lr 2.5e-4 ")) << "not twice as high with twice the batch";
}

TEST_F(RateOrder, SurvivesAKill) {
  auto first = started();
  EXPECT_EQ(order({"save"}).exit_code, 0);
  ASSERT_TRUE(first->prints("on request"));
  set_rate(*first, "0.001");
  set_rate(*first, "0.00025");
  kill(*first);
  Program again(endless(folder_));
  EXPECT_TRUE(again.prints("2.5e-4, set by an order"));
  EXPECT_TRUE(again.prints(" lr 2.5e-4 "));
  kill(again);
  Program third(endless(folder_));
  EXPECT_TRUE(third.prints(" lr 2.5e-4 ")) << "nor did the second attempt save";
}

TEST_F(RateOrder, SurvivesAKillBeforeTheFirstSave) {
  auto first = started();
  set_rate(*first, "0.00025");
  kill(*first);
  Program again(endless(folder_));
  EXPECT_TRUE(again.prints(" lr 2.5e-4 "));
}

TEST_F(RateOrder, IsForgottenByARunThatStartsOver) {
  auto first = started();
  set_rate(*first, "0.00025");
  kill(*first);
  Program again(endless(folder_, {"--set", "checkpoint.resume=never"}));
  EXPECT_TRUE(again.prints(" lr 3e-3 "));
}

TEST_F(RateOrder, IsFollowedByAReplay) {
  const std::vector<std::string> more{"--set", "checkpoint.keep_every=100", "--set", "precision=fp32"};
  auto first = paused(more);
  EXPECT_EQ(order({"save"}).exit_code, 0);
  ASSERT_TRUE(first->prints("on request"));
  set_rate(*first, "0.00025");
  EXPECT_EQ(order({"resume"}).exit_code, 0);
  ASSERT_TRUE(first->prints(" lr 2.5e-4 "));
  set_rate(*first, "0.0005");
  ASSERT_TRUE(first->prints(" lr 5e-4 "));
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  EXPECT_EQ(first->wait().exit_code, 143);
  const std::string last = std::to_string(summary(run_)["step"].get<int64_t>());
  const Result replay = gputrain({"replay", run_, "--step", last});
  EXPECT_EQ(replay.exit_code, 0) << replay.out << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("weights  equal"));
}

TEST_F(RateOrder, OfAnOlderVersionRefusesAReplay) {
  auto first = started();
  EXPECT_EQ(order({"save"}).exit_code, 0);
  ASSERT_TRUE(first->prints("on request"));
  set_rate(*first, "0.00025");
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  first->wait();
  std::string text;
  std::ifstream ledger(run_ + "/ledger.jsonl");
  for (std::string line; std::getline(ledger, line);) {
    Json object = Json::parse(line);
    if (object["kind"] == "order") object.erase("ordered_rate");
    text += object.dump() + "\n";
  }
  std::ofstream(run_ + "/ledger.jsonl", std::ios::trunc) << text;
  const std::string last = std::to_string(summary(run_)["step"].get<int64_t>());
  const Result replay = gputrain({"replay", run_, "--step", last});
  EXPECT_EQ(replay.exit_code, 2) << replay.out;
  EXPECT_THAT(replay.err, HasSubstr("does not have the rate"));
}

using Pause = Orders;

TEST_F(Pause, ServesSaves) {
  auto program = paused();
  EXPECT_EQ(order({"save"}).exit_code, 0);
  EXPECT_TRUE(program->prints("on request"));
  program->forget_output();
  program->signal(SIGUSR2);
  EXPECT_TRUE(program->prints("on request"));
  EXPECT_FALSE(checkpoints(run_).empty());
}

TEST_F(Pause, SavesOnceWhenTheIntervalIsOver) {
  auto program = paused({"--set", "checkpoint.interval=2s"});
  const auto has_saved = [&] { return read_file(run_ + "/ledger.jsonl").find(R"("kind":"checkpoint")"); };
  const auto until = std::chrono::steady_clock::now() + testing::patience(std::chrono::seconds(30));
  while (has_saved() == std::string::npos && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(has_saved(), std::string::npos);
  program->signal(SIGTERM);
  EXPECT_EQ(program->wait().exit_code, 143);
  EXPECT_EQ(checkpoints(run_).size(), 1U);
}

TEST_F(Pause, EndsAtTheTimeLimit) {
  auto program = paused({"--set", "limits.max_duration=" + std::to_string(testing::patience(8)) + "s"});
  EXPECT_EQ(program->wait(60).exit_code, 138);
  EXPECT_EQ(summary(run_)["stopped_by"], "limits.max_duration");
  EXPECT_FALSE(checkpoints(run_).empty());
}

TEST_F(Pause, EndsWhereTheRunFolderIsMoved) {
  auto program = paused();
  std::filesystem::rename(run_, run_ + "-elsewhere");
  const Result result = program->wait(60);
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("moved or removed"));
}

TEST_F(Pause, ServesSavesAndLimitsOnSeveralRanks) {
  auto arguments = endless(folder_, {"--set", "limits.max_duration=" + std::to_string(testing::patience(20)) + "s"});
  arguments.insert(arguments.begin() + 1, {"launch", "--nproc-per-node", "2", "--max-restarts", "0"});
  Program program(arguments, {{"OMP_NUM_THREADS", "1"}});
  ASSERT_TRUE(program.prints("step    2"));
  EXPECT_EQ(order({"pause"}).exit_code, 0);
  ASSERT_TRUE(program.prints("pauses after step"));
  EXPECT_EQ(order({"save"}).exit_code, 0);
  EXPECT_TRUE(program.prints("on request"));
  EXPECT_EQ(program.wait(90).exit_code, 138);
}

TEST_F(Pause, IsNoLongStep) {
  auto program = paused({"--set", "alerts=[{metric: since_step_seconds, value: 2, for: 0s}]"});
  std::this_thread::sleep_for(std::chrono::seconds(4));  // the alert looks at a clock
  EXPECT_TRUE(program->is_running());
  EXPECT_EQ(order({"resume"}).exit_code, 0);
  ASSERT_TRUE(program->prints("goes on"));
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  EXPECT_THAT(program->wait().err, Not(HasSubstr("alert: since_step_seconds")));  // a full disk may be told
}

TEST_F(Orders, LeaveAlertsToNewValues) {
  auto first = started();
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  first->wait();
  Program again(endless(folder_, {"--set", "optimizer.lr=0.0005", "--set", "train.max_steps=80", "--accept", "--set",
                                  "alerts=[{metric: train/lr, op: '>', value: 0.001, action: stop}]"}));
  const Result result = again.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(Orders, CostWhatTheClockOfTheLedgerSays) {
  const std::vector<std::string> limits{"--set", "limits.price_per_hour=2.5", "--set", "limits.max_cost=1000"};
  auto first = started(limits);
  EXPECT_EQ(order({"stop"}).exit_code, 0);
  first->wait();
  std::string text;
  std::ifstream ledger(run_ + "/ledger.jsonl");
  for (std::string line; std::getline(ledger, line);) {
    Json object = Json::parse(line);
    if (object["kind"] == "attempt") object["time"] = 12.5;  // a clock that was set later
    text += object.dump() + "\n";
  }
  std::ofstream(run_ + "/ledger.jsonl", std::ios::trunc) << text;
  auto again = limits;
  again.insert(again.end(), {"--set", "train.max_steps=80", "--accept"});
  Program second(endless(folder_, again));
  EXPECT_EQ(second.wait().exit_code, 0);
}

}  // namespace
}  // namespace gputrain::testing_support
