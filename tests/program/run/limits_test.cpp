// Causes other than signals that end a run or prevent its start: the cloud, limits, another process, nothing left to
// do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "gputrain/core/descriptor.hpp"
#include "support/endless_run.hpp"
#include "support/fake_cloud.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

TEST(RunSummary, KeepsFiguresWhenNothingIsLeftToDo) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto before = summary(folder / "run");
  const Result again = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing was left to train: raise train.max_steps and add --accept to go on"));
  EXPECT_THAT(again.out, ::testing::Not(HasSubstr("tok/s")));
  EXPECT_GT(before["throughput"]["tokens_per_second"], 0);
  EXPECT_EQ(summary(folder / "run")["throughput"], before["throughput"]);
}

// No evaluation improves by min_delta, so the first one, after step 2, is the last gain.
TEST(EarlyStopping, StopsAfterEvaluationsWithoutGain) {
  const TemporaryFolder folder;
  const std::string job =
      write_gpt_job(folder, "eval: {interval: 2, early_stopping: {patience: 3, min_delta: 1000}}\n");
  const auto train = [&](const std::string& set) {
    const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--set", set});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("steps  stopped early"));
    return summary(folder / "run")["step"].get<int64_t>();
  };
  EXPECT_EQ(train("log.interval=1"), 2 + 3 * 2);
  EXPECT_EQ(summary(folder / "run")["status"], "done");
  EXPECT_EQ(train("log.interval=1"), 2 + 3 * 2);  // starting again takes no further step
  EXPECT_EQ(train("eval.early_stopping.patience=5"), 2 + 5 * 2);
  const Result never = gputrain({"run", job, "--output-dir", folder / "run", "--set", "eval.early_stopping=null"});
  EXPECT_THAT(never.out, HasSubstr("20/20 steps  all steps done")) << never.err;
}

TEST(EarlyStopping, CountsFromTheLastGain) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder,
                                        "eval: {interval: 2, early_stopping: {patience: 2}}\n"
                                        "lr_scheduler: {type: multistep, milestones: [6], gamma: 1e-300}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_THAT(result.out, HasSubstr("10/20 steps  stopped early")) << result.err;
}

TEST(EarlyStopping, CountsEqualLossAsNoGain) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "eval: {interval: 2, early_stopping: {patience: 1}}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_THAT(result.out, HasSubstr("20/20 steps  all steps done")) << result.err;
  const Result still = gputrain({"run", job, "--output-dir", folder / "still", "--set", "optimizer.lr=1e-300"});
  EXPECT_THAT(still.out, HasSubstr("4/20 steps  stopped early")) << still.err;
}

// A perplexity improves by whole numbers when the loss improves by tenths.
TEST(EarlyStopping, WatchesChosenMetricWithoutBestCheckpoint) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder,
                                        "eval: {interval: 10, early_stopping: {patience: 1, min_delta: 1}}\n"
                                        "checkpoint: {keep_best: 0}\n");
  const auto end_by = [&](const std::string& metric) {
    return gputrain({"run", job, "--output-dir", folder / metric, "--set", "checkpoint.metric=" + metric, "--set",
                     "eval.at_start=true"});
  };
  EXPECT_THAT(end_by("loss").out, HasSubstr("10/20 steps  stopped early"));
  EXPECT_THAT(end_by("perplexity").out, HasSubstr("20/20 steps"));
}

// A perplexity is always above its loss.
TEST(EarlyStopping, RestartsCountWhenMetricChanges) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "eval: {interval: 2, early_stopping: {patience: 3}}\n");
  const auto train = [&](const std::string& metric, const std::string& steps) {
    return gputrain({"run", job, "--accept", "--output-dir", folder / "run", "--set", "checkpoint.metric=" + metric,
                     "--set", "train.max_steps=" + steps});
  };
  ASSERT_EQ(train("loss", "10").exit_code, 0);
  const Result by_perplexity = train("perplexity", "20");
  EXPECT_THAT(by_perplexity.out, HasSubstr("20/20 steps  all steps done")) << by_perplexity.err;
}

int64_t tests_in(const std::string& run) {
  const std::string curve = read_file(run + "/metrics.jsonl"), name = "\"test/loss\"";
  int64_t count = 0;
  for (size_t at = curve.find(name); at != std::string::npos; at = curve.find(name, at + 1)) ++count;
  return count;
}

TEST(FinalTest, RunsOnlyOnceForAFinishedRun) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::vector<std::string> command{"run",          write_gpt_job(folder, "expect: {test/loss: [0, 100]}\n"),
                                         "--set",        "data.test.split=10%",
                                         "--output-dir", run,
                                         "--verify"};
  ASSERT_EQ(gputrain(command).exit_code, 0);
  const auto before = summary(run)["metrics"];
  ASSERT_TRUE(before.contains("test/loss"));
  for (int time = 0; time < 2; ++time) {
    const Result again = gputrain(command);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("nothing was left to train"));
    EXPECT_EQ(tests_in(run), 1);
    EXPECT_EQ(summary(run)["metrics"], before);
  }
  auto command_of_two = command;
  command_of_two.insert(command_of_two.begin(), {"launch", "--nproc-per-node", "2"});
  const Result by_two = gputrain(command_of_two);
  EXPECT_EQ(by_two.exit_code, 0) << by_two.err;
  EXPECT_EQ(tests_in(run), 1);
  auto longer = command;
  longer.insert(longer.end(), {"--accept", "--set", "train.max_steps=21"});
  EXPECT_EQ(gputrain(longer).exit_code, 0);
  EXPECT_EQ(tests_in(run), 2);
}

TEST(FinalTest, StaysInCurveWithoutValidation) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::vector<std::string> command{"run",   write_gpt_job(folder), "--output-dir", run,
                                         "--set", "data.val=null",       "--set",        "data.test.split=10%"};
  for (int time = 0; time < 2; ++time) {
    const Result result = gputrain(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(tests_in(run), 1);
  }
}

TEST(RunSummary, NamesPlaceOfAFailureAsTheLogDoes) {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "b/2.png"}) folder.write(std::string("images/") + name, "no picture");
  const std::string job = folder.write("job.yaml",
                                       "model: {type: mlp}\n"
                                       "data: {train: {path: " +
                                           (folder / "images") +
                                           ", format: imagefolder}, image: {size: 4}}\n"
                                           "train: {max_steps: 1, global_batch_size: 2}\n");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(read_file(folder / "run/logs/rank_0000.log"),
              ::testing::ContainsRegex("error [^\n]*\\.png: neither JPEG nor PNG"));
  EXPECT_THAT(summary(folder / "run")["reason"].get<std::string>(), HasSubstr(".png: neither JPEG nor PNG"));
}

TEST(RunSummary, ExcludesEarlierAttemptsWhenKilled) {
  const TemporaryFolder folder;
  Program first(endless(folder));
  ASSERT_TRUE(first.prints("step    1/"));
  EXPECT_EQ(summary(folder / "run")["status"], "begun");
  first.signal(SIGTERM);
  ASSERT_EQ(first.wait().exit_code, 143);
  const auto stopped = summary(folder / "run");
  EXPECT_EQ(stopped["status"], "stopped");
  const std::string curve = folder / "run/metrics.jsonl";
  std::filesystem::rename(curve, folder / "curve");
  ASSERT_EQ(mkfifo(curve.c_str(), 0600), 0);
  Program loading(endless(folder));
  int writer = -1;  // Opens once the run reads the curve, after the checkpoint; holding it open blocks the reader.
  while ((writer = open(curve.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
    ASSERT_TRUE(loading.is_running());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Descriptor held(writer);
  loading.signal(SIGKILL);
  ASSERT_EQ(loading.wait().exit_code, 137);
  const auto killed = summary(folder / "run");
  EXPECT_EQ(killed["status"], "begun");
  EXPECT_TRUE(killed["exit_code"].is_null());
  EXPECT_FALSE(killed.contains("step"));
  EXPECT_EQ(killed.value("before", nlohmann::json()), stopped);
  std::filesystem::rename(folder / "curve", curve);
  Program training(endless(folder));
  ASSERT_TRUE(training.prints("resume  step"));
  training.signal(SIGKILL);
  ASSERT_EQ(training.wait().exit_code, 137);
  EXPECT_EQ(summary(folder / "run"), killed);
}

TEST(RunSummary, KeepsEarlierEndUnlessTheRunFails) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), run = folder / "run";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 0);
  const std::string before = read_file(run + "/summary.json");
  EXPECT_EQ(gputrain({"run", job, "--output-dir", run, "--set", "optimizer.lr=1"}).exit_code, 2);
  EXPECT_EQ(read_file(run + "/summary.json"), before);
  std::filesystem::resize_file(run + "/ckpt/step-00000020/model.safetensors", 10);
  EXPECT_EQ(gputrain({"run", job, "--output-dir", run}).exit_code, 5);
  const auto failed = summary(run);
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["exit_code"], 5);
  EXPECT_THAT(failed["reason"].get<std::string>(), HasSubstr("none of the run's checkpoints is good"));
  EXPECT_EQ(failed.value("before", nlohmann::json()), nlohmann::json::parse(before));
  EXPECT_EQ(gputrain({"run", job, "--output-dir", folder / "new", "--set", "checkpoint.resume=must"}).exit_code, 5);
  EXPECT_FALSE(summary(folder / "new").contains("before"));
}

class PreemptionNotice : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Clouds, PreemptionNotice, ::testing::ValuesIn(gputrain::testing::kClouds),
                         [](const auto& entry) { return entry.param; });

TEST_P(PreemptionNotice, SavesAndAsksForRestart) {
  const TemporaryFolder folder;
  gputrain::testing::FakeCloud cloud(GetParam());
  Program program(endless(folder, {"--set", "checkpoint.notice.interval=1s"}),
                  {{"GPUTRAIN_METADATA_URL", cloud.url()}});
  ASSERT_TRUE(program.prints("step    20/"));
  cloud.announce(gputrain::testing::announcement(GetParam(), 100));
  const Result result = program.wait(30);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" announces "));
  EXPECT_THAT(result.out, HasSubstr("about to be taken away, saved"));
  EXPECT_EQ(summary(folder / "run")["stopped_by"], "notice");
  EXPECT_EQ(checkpoints(folder / "run").size(), 1U);
}

TEST(NoticePolling, IgnoresJunkAndSaysSoOnce) {
  const TemporaryFolder folder;
  gputrain::testing::FakeCloud cloud("aws");
  const std::string duration = "limits.max_duration=" + std::to_string(testing::patience(6)) + "s";
  Program program(endless(folder, {"--set", "checkpoint.notice.interval=1s", "--set", duration}),
                  {{"GPUTRAIN_METADATA_URL", cloud.url()}});
  ASSERT_TRUE(program.prints("step    20/"));
  cloud.announce("{{{");
  const Result result = program.wait(30);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.out, HasSubstr("limits.max_duration reached"));
  EXPECT_THAT(result.err, HasSubstr("AWS"));  // reported once
}

TEST(RunFolder, RefusesSecondProcess) {
  const TemporaryFolder folder;
  Program first(endless(folder));
  ASSERT_TRUE(first.prints("step    1/"));
  for (const std::string resume : {"auto", "never"}) {
    const Result second = Program(endless(folder, {"--set", "checkpoint.resume=" + resume})).wait();
    EXPECT_EQ(second.exit_code, 2) << second.out;
    EXPECT_THAT(second.err, HasSubstr("in use by process"));
  }
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 137);
  EXPECT_EQ(Program(endless(folder, {"--set", "train.max_steps=3"})).wait().exit_code, 0);  // no lock remains
}

/// Sends SIGSTOP and waits until the process has stopped.
void stand_still(const Program& program) {
  program.signal(SIGSTOP);
  const std::string status = "/proc/" + std::to_string(program.id()) + "/stat";
  for (std::string text; text.find(") T ") == std::string::npos;) text = read_file(status);
}

TEST(RunFolder, EndsRunWhenMovedAndResumesWhenBack) {
  const TemporaryFolder folder;
  Program run(endless(folder, {"--set", "checkpoint.interval=1"}));
  ASSERT_TRUE(run.prints("step    20/"));
  stand_still(run);
  std::filesystem::rename(folder / "run", folder / "moved");
  run.signal(SIGCONT);
  const Result result = run.wait();
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr(folder / "run: the run folder was moved or removed while the run used it"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/summary.json"));
  std::filesystem::remove_all(folder / "run");
  std::filesystem::rename(folder / "moved", folder / "run");
  Program again(endless(folder));
  EXPECT_TRUE(again.prints("resume  step "));
}

TEST(RunFolder, StaysWithRunWhenOnlyLockIsRemoved) {
  const TemporaryFolder folder;
  Program run(endless(folder));
  ASSERT_TRUE(run.prints("step    1/"));
  std::filesystem::remove(folder / "run/lock");
  run.signal(SIGTERM);  // it checks the lock before it saves
  const Result result = run.wait();
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_EQ(checkpoints(folder / "run").size(), 1U);
}

TEST(RunFolder, IsLeftToRunThatTookItOver) {
  for (const bool has_ended : {false, true}) {
    const TemporaryFolder folder;
    Program first(endless(folder));
    ASSERT_TRUE(first.prints("step    1/"));
    stand_still(first);  // until the other run has the folder
    std::filesystem::rename(folder / "run", folder / "moved");
    Program second(endless(folder));
    ASSERT_TRUE(second.prints("step    1/"));
    const std::string holder = std::to_string(second.id());
    const auto end_second = [&] {
      second.signal(SIGTERM);
      EXPECT_EQ(second.wait().exit_code, 143);
    };
    if (has_ended) end_second();
    first.signal(SIGCONT);
    const Result result = first.wait();
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr("another run uses this path now: process " + holder));
    if (!has_ended) end_second();
    EXPECT_EQ(summary(folder / "run")["status"], "stopped");
    EXPECT_EQ(gputrain({"data", "audit", folder / "run"}).exit_code, 0);
  }
}

TEST(RunLimits, RefuseAttemptsWithoutProgress) {
  const TemporaryFolder folder;
  const auto run = endless(folder, {"--set", "limits.max_attempts_without_progress=2"});
  for (int i = 0; i < 2; ++i) {
    Program attempt(run);
    ASSERT_TRUE(attempt.prints("step    1/"));
    attempt.signal(SIGKILL);
    EXPECT_EQ(attempt.wait().exit_code, 137);
  }
  const Result refused = Program(run).wait();
  EXPECT_EQ(refused.exit_code, 93) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("2 attempts in a row did not come past step 0; the last one: killed"));
  auto accepted = run;
  accepted.insert(accepted.end(), {"--accept", "--set", "train.max_steps=3"});
  EXPECT_EQ(Program(accepted).wait().exit_code, 0);
}

TEST(RunLimits, AskForRestartAtMaxDuration) {
  const TemporaryFolder folder;
  const std::string duration = "limits.max_duration=" + std::to_string(testing::patience(2)) + "s";
  const Result first = Program(endless(folder, {"--set", duration, "--set", "log.interval=1000000"})).wait();
  EXPECT_EQ(first.exit_code, 138) << first.err;
  EXPECT_THAT(first.out, ::testing::Not(HasSubstr("\nresult ")));  // no result has been computed yet
  const int64_t step = summary(folder / "run")["step"];
  const Result second = Program(endless(folder, {"--set", duration})).wait();
  EXPECT_EQ(second.exit_code, 138) << second.err;
  EXPECT_GT(summary(folder / "run")["step"], step);
}

}  // namespace
}  // namespace gputrain::testing_support
