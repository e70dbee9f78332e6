// Deaths of ranks under the launcher, and their restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gputrain/comm/sockets.hpp"
#include "support/launched.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Way {
  std::string name;
  int signal;
  std::string cause;
  int exit_code;
  double seconds;
};
const Way kKill{"Kill", SIGKILL, "was killed by SIGKILL", 138, 10},
    kCrash{"Crash", SIGSEGV, "was killed by SIGSEGV", 138, 10},
    kExit{"Exit1", SIGRTMIN + 5, "ended with exit code 1 (internal error)", 1, 10},
    kStop{"Stop", SIGSTOP, "has been stopped for", 138, 30};

struct Death {
  Way way;
  std::string phase;
  int rank;

  std::string name() const { return way.name + "In" + phase + "OfRank" + std::to_string(rank); }
  friend void PrintTo(const Death& it, std::ostream* to) { *to << it.name(); }
};

/// Each way in each phase; either rank in each way and in each phase.
std::vector<Death> deaths() {
  std::vector<Death> all;
  int rank = 0;
  for (const Way& way : {kKill, kCrash, kExit}) {
    for (const std::string phase : {"Start", "Training", "Evaluation", "Save"}) {
      all.push_back({way, phase, rank});
      rank = 1 - rank;
    }
    rank = 1 - rank;
  }
  all.push_back({kStop, "Training", 0});
  all.push_back({kStop, "Evaluation", 1});
  return all;
}

class LaunchedRankDeath : public ::testing::TestWithParam<Death> {
 protected:
  static void TearDownTestSuite() { std::printf("deaths of a rank: %d tried, %d right\n", tried, right); }
  static inline int tried = 0, right = 0;
};
INSTANTIATE_TEST_SUITE_P(Ways, LaunchedRankDeath, ::testing::ValuesIn(deaths()),
                         [](const auto& entry) { return entry.param.name(); });

Words settings_for(const std::string& phase) {
  if (phase == "Evaluation")
    return kEndless + Words{"eval.at_start=true", "data.val.split=90%", "eval.batch_size=1", "model.config.n_layer=16"};
  if (phase == "Save")
    return {"train.max_steps=1000000", "eval.interval=null", "model.config.n_embd=512", "checkpoint.interval=1"};
  return kEndless;
}

bool reaches(const std::string& phase, Launched& launched) {
  if (phase == "Training") return launched.program().prints("step    7/");
  if (phase == "Evaluation") return launched.program().prints("resume  none");
  if (phase == "Start") return launched.family().rank(0) != launched.family().rank(1);  // both exist
  const auto is_saving = [&] {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(launched.run() + "/ckpt", gone)) {
      if (entry.path().extension() == ".partial") return true;
    }
    return false;
  };
  while (!is_saving()) {
    if (!launched.program().is_running()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

TEST_P(LaunchedRankDeath, EndsJobAndNamesRank) {
  const auto& [way, phase, rank] = GetParam();
  ++tried;
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "0"}, settings_for(phase));
  ASSERT_TRUE(reaches(phase, launched));
  const pid_t victim = launched.family().rank(rank);
  launched.family().remember();
  ASSERT_EQ(kill(victim, way.signal), 0);
  // Wait for the program first: it is a zombie until then.
  const auto begin = std::chrono::steady_clock::now();
  const Result result = launched.program().wait(way.seconds);
  const bool all_gone = launched.family().ends_within(1);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_TRUE(all_gone) << ::testing::PrintToString(launched.family().living());
  EXPECT_LT(seconds, testing::patience(way.seconds));
  const bool is_early_exit =
      phase == "Start" && way.name == "Exit1";  // before the handler is installed, the signal itself kills
  EXPECT_THAT(result.err, HasSubstr("cause   rank " + std::to_string(rank) + " on localhost"));
  if (!is_early_exit) {
    EXPECT_EQ(result.exit_code, way.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(way.cause));
  }
  if (!HasFailure()) ++right;
}

TEST(LaunchFailure, EndsJobAndNamesHostOfDeadAgent) {
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "0"}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  launched.family().remember();
  kill(launched.family().agent(), SIGKILL);
  const Result result = launched.program().wait(10);
  EXPECT_EQ(result.exit_code, 138);
  EXPECT_THAT(result.err, HasSubstr("cause   the host localhost is lost: its agent was killed by SIGKILL"));
  EXPECT_TRUE(launched.family().ends_within(1)) << ::testing::PrintToString(launched.family().living());
}

TEST(LaunchFailure, EndsEveryProcessOfDeadLauncher) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  launched.family().remember();
  launched.program().signal(SIGKILL);
  EXPECT_EQ(launched.program().wait(10).exit_code, 137);
  EXPECT_TRUE(launched.family().ends_within(10)) << ::testing::PrintToString(launched.family().living());
}

// Restarts

TEST(LaunchRestart, EndsBitEqualToUndisturbedRun) {
  const TemporaryFolder folder, calm_folder;
  const Words settings{"train.max_steps=260", "checkpoint.interval=20", "eval.interval=100"};
  Launched launched(folder, {}, settings);
  ASSERT_TRUE(launched.program().prints("step    50/"));
  kill(launched.family().rank(1), SIGKILL);
  ASSERT_TRUE(launched.program().prints("start 2  "));
  ASSERT_TRUE(launched.program().prints("step    120/"));
  kill(launched.family().rank(0), SIGKILL);
  const Result result = launched.program().wait();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("restart 2 of 3 from step"), HasSubstr("start 3  ")));
  Launched calm(calm_folder, {}, settings);
  ASSERT_EQ(calm.program().wait().exit_code, 0);
  EXPECT_EQ(timeless_metrics(launched.run() + "/metrics.jsonl"), timeless_metrics(calm.run() + "/metrics.jsonl"));
  EXPECT_EQ(read_file(launched.run() + "/model.safetensors"), read_file(calm.run() + "/model.safetensors"));
  EXPECT_EQ(gputrain({"data", "audit", launched.run()}).exit_code, 0);
}

TEST(LaunchRestart, RunsTheReplacedProgram) {
  const TemporaryFolder folder;
  const fs::path built = gputrain_path(), own = folder / "bin/gputrain";
  fs::create_directories(own.parent_path());
  fs::copy_file(built, own);
  fs::create_directory_symlink(built.parent_path().parent_path() / "lib", folder / "lib");
  Words command{own, "launch", "--max-restarts", "1", "run", write_gpt_job(folder), "--output-dir", folder / "run"};
  for (const auto& setting : kEndless + Words{"log.interval=1"}) command = command + Words{"--set", setting};
  const ProcessFamily family;
  Program program(command, family.environment());
  ASSERT_TRUE(program.prints("step    3/"));
  fs::copy_file(built, folder / "bin/new");
  fs::rename(folder / "bin/new", own);
  kill(family.rank(0), SIGKILL);
  ASSERT_TRUE(program.prints("start 2  "));
  program.forget_output();
  EXPECT_TRUE(program.prints("step    3/"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(30).exit_code, 143);
}

TEST(LaunchRestart, StopsWhenNoRestartIsLeft) {
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "1"}, kEndless);
  for (const std::string before : {"start 1  ", "restart 1 of 1 from step"}) {
    ASSERT_TRUE(launched.program().prints(before));
    launched.program().forget_output();
    ASSERT_TRUE(launched.program().prints("gnorm"));
    kill(launched.family().rank(1), SIGUSR1);  // all ranks save and end for a restart
  }
  const Result result = launched.program().wait(60);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no restart is left (launch.max_restarts: 1)"));
}

TEST(LaunchRestart, ContinuesWhenLogsCannotBeWritten) {
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "1"}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    3/"));
  const std::string of_launcher = launched.run() + "/logs/start_2/rank_0001.log",
                    own = launched.run() + "/logs/rank_0001.log";
  fs::remove(own);
  for (const auto& log : {of_launcher, own}) fs::create_directories(log);
  kill(launched.family().rank(1), SIGKILL);
  ASSERT_TRUE(launched.program().prints("launch  no log can be written on localhost: " + of_launcher + ": Is a direc"));
  launched.program().forget_output();
  EXPECT_TRUE(launched.program().prints("step    3/"));
  launched.program().signal(SIGTERM);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("[rank 1] warning: "), HasSubstr(own)));
  const std::string warning = "cannot write the log";
  EXPECT_EQ(result.err.find(warning), result.err.rfind(warning)) << result.err;
}

TEST(LaunchRestart, IsSkippedWhenItCannotHelp) {
  const TemporaryFolder folder;
  const std::vector<std::pair<Words, int>> ends{
      {{"lr_scheduler={type: cosine, min_lr: 1}"}, 2},
      {{"data.train.path=/nowhere"}, 3},
      {{"optimizer.type=sgd", "optimizer.lr=1e30", "precision=fp32"}, 4},
      {{"checkpoint.resume=must"}, 5},
      {{"train.max_steps=1000000", "limits.price_per_hour=1e9", "limits.max_cost=1e-9"}, 93}};
  for (const auto& [settings, code] : ends) {
    fs::remove_all(folder / "run");
    Launched launched(folder, {}, settings);
    const Result result = launched.program().wait();
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr("a restart would not help"));
    EXPECT_THAT(result.out, Not(HasSubstr("restart 1 of")));
  }
}

TEST(LaunchRestart, IsFreeForLostHostsWhileTrainingAdvances) {
  if (comm::outward_address().empty()) GTEST_SKIP() << "this machine has no address at which two hosts could meet";
  const TemporaryFolder folder;
  Launched first(folder, {}, kEndless);
  ASSERT_TRUE(first.program().prints("step    3/"));
  first.program().signal(SIGTERM);
  ASSERT_EQ(first.program().wait(30).exit_code, 143);  // saved
  Launched launched(folder, {"--hosts", "localhost,127.0.0.1", "--nnodes", "1:2", "--max-restarts", "0"}, kEndless);
  ASSERT_TRUE(launched.program().prints("resume  step"));
  kill(launched.family().agent(), SIGKILL);
  ASSERT_TRUE(launched.program().prints("start again from step"));
  launched.program().forget_output();
  ASSERT_TRUE(launched.program().prints("resume  step"));
  kill(launched.family().agent(), SIGKILL);
  const Result result = launched.program().wait(60);
  EXPECT_EQ(result.exit_code, 138) << result.out;
  EXPECT_THAT(result.err, HasSubstr("is lost: its agent was killed by SIGKILL"));
}

/// Stops a run once it says so.
void stop_at(const std::string& cue, Launched& launched) {
  EXPECT_TRUE(launched.program().prints(cue));
  launched.program().signal(SIGTERM);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 143) << result.err;
}

TEST(LaunchRestart, PrefersNewerSaveOverResumePath) {
  const TemporaryFolder folder;
  const Words settings{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=20",
                       "checkpoint.keep_every=20"};
  Launched first(folder, {}, settings);
  stop_at("step    50/", first);
  const std::string chosen = folder / "chosen";
  fs::rename(first.run() + "/ckpt/step-00000020", chosen);
  fs::remove_all(first.run());
  Launched second(folder, {}, settings + Words{"checkpoint.resume=" + chosen});
  ASSERT_TRUE(second.program().prints("step    50/")) << second.program().wait(5).err;
  kill(second.family().rank(1), SIGKILL);
  ASSERT_TRUE(second.program().prints("start 2  "));
  EXPECT_TRUE(second.program().prints(" from " + second.run() + "/ckpt/step-"));
  stop_at("gnorm", second);
}

/// The first attempt saves it in the branch that it begins.
TEST(LaunchRestart, FromAPathBeginsThereAgainUntilMoreIsSaved) {
  const TemporaryFolder folder;
  Launched first(
      folder, {},
      {"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=20", "checkpoint.keep_every=20"});
  stop_at("step    50/", first);
  const std::string chosen = first.run() + "/ckpt/step-00000020";
  Launched second(folder, {}, kEndless + Words{"checkpoint.resume=" + chosen});
  ASSERT_TRUE(second.program().prints("step    40/")) << second.program().wait(5).err;
  second.program().forget_output();
  kill(second.family().rank(1), SIGKILL);
  EXPECT_TRUE(second.program().prints("resume  step 20 from " + first.run() + "/ckpt/branch-2/step-00000020"));
  stop_at("gnorm", second);
}

}  // namespace
}  // namespace gputrain::testing_support
