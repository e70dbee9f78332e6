// Deaths of ranks, without a launcher of ours: ranks that the test starts, which only watch each other, and ranks under
// torchrun. Tests what the survivors report and do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "support/ports.hpp"
#include "support/process_family.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr int kRanks = 3;

struct Manner {
  std::string name;
  int signal;
  std::string told;
  double seconds;
};
const Manner kKilled{"Kill", SIGKILL, "has ended without a word", 10},
    kCrashed{"Crash", SIGSEGV, "has ended without a word", 10},
    kExited{"Exit1", SIGRTMIN + 5, "has ended without a word", 10},
    kStopped{"Stop", SIGSTOP, "has not been heard from for 15 s", 30};

struct Case {
  Manner manner;
  std::string phase;
  int rank;

  std::string name() const { return manner.name + "In" + phase + "OfRank" + std::to_string(rank); }
  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name(); }
  /// Whether the rank kills itself (strike_inside.cpp), because a signal from outside may miss the phase.
  bool is_inside() const { return phase == "Forward" || phase == "Collective"; }
};

Words settings_of(const std::string& phase) {
  Words settings{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=null"};
  const auto add = [&](const Words& more) { settings.insert(settings.end(), more.begin(), more.end()); };
  if (phase == "Evaluation") {
    add({"eval.at_start=true", "data.val.split=90%", "eval.batch_size=1", "model.config.n_layer=16"});
  } else if (phase == "Save") {
    add({"model.config.n_embd=512", "checkpoint.interval=1"});
  }
  return settings;
}

Words command_of(const TemporaryFolder& folder, const Case& death) {
  Words command{gputrain_path(), "run", write_gpt_job(folder, "log: {interval: 1}\n"), "--output-dir", folder / "run"};
  for (const auto& setting : settings_of(death.phase)) command.insert(command.end(), {"--set", setting});
  if (death.is_inside()) command.insert(command.end(), {"--set", "train.max_steps=1000"});  // in case nothing strikes
  return command;
}

std::map<std::string, std::string> environment_of(const ProcessFamily& family, const Case& death) {
  auto environment = family.environment();
  environment.insert({{"LD_PRELOAD", FAULTS}, {"OMP_NUM_THREADS", "1"}});
  if (!death.is_inside()) return environment;
  // A forward pass calls at::linear once; a step writes several pieces.
  environment.insert({{"STRIKE_AT", death.phase == "Forward" ? "forward" : "collective"},
                      {"STRIKE_RANK", std::to_string(death.rank)},
                      {"STRIKE_SIGNAL", std::to_string(death.manner.signal)},
                      {"STRIKE_COUNT", death.phase == "Forward" ? "8" : "40"}});
  return environment;
}

/// Three ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
class ByHand {
 public:
  ByHand(const TemporaryFolder& folder, const Case& death) : run_(folder / "run") {
    const Words command = command_of(folder, death);
    auto environment = environment_of(family_, death);
    environment.insert({{"WORLD_SIZE", std::to_string(kRanks)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(gputrain::testing::free_port())}});
    for (int rank = 0; rank < kRanks; ++rank) {
      environment["RANK"] = std::to_string(rank);
      programs_.push_back(std::make_unique<Program>(command, environment));
    }
  }

  Program& rank(int number) { return *programs_.at(static_cast<size_t>(number)); }
  const ProcessFamily& family() const { return family_; }
  const std::string& run() const { return run_; }

 private:
  std::string run_;
  ProcessFamily family_;
  std::vector<std::unique_ptr<Program>> programs_;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Manner& manner : {kKilled, kCrashed, kExited}) {
    for (const std::string phase : {"Start", "Forward", "Collective", "Training", "Evaluation", "Save"}) {
      for (const int rank : {0, 1}) all.push_back({manner, phase, rank});
    }
  }
  for (const int rank : {0, 1}) all.push_back({kStopped, "Training", rank});
  all.push_back({kStopped, "Evaluation", 1});
  all.push_back({kStopped, "Save", 0});
  all.push_back({kStopped, "Forward", 1});
  all.push_back({kStopped, "Collective", 0});
  return all;
}

bool is_saving(const std::string& run) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(run + "/ckpt", gone)) {
    if (entry.path().extension() == ".partial") return true;
  }
  return false;
}

/// Waits until the run has reached the phase.
bool comes_to(const std::string& phase, ByHand& ranks) {
  if (phase == "Start") return ranks.rank(0).prints("hosts ");
  if (phase == "Training") return ranks.rank(0).prints("step    7/");
  if (phase == "Evaluation") return ranks.rank(0).prints("resume  none");
  while (!is_saving(ranks.run())) {
    if (!ranks.rank(0).is_running()) return false;
  }
  return true;
}

/// Strikes when the run has reached the phase, or waits until the rank has struck itself.
bool strike(const Case& death, ByHand& ranks) {
  Program& victim = ranks.rank(death.rank);
  if (death.is_inside()) {
    siginfo_t news{};
    return ::waitid(P_PID, static_cast<id_t>(victim.id()), &news, WEXITED | WSTOPPED | WNOWAIT) == 0;
  }
  if (!comes_to(death.phase, ranks)) return false;
  victim.signal(death.manner.signal);
  return true;
}

class RankDeathByHand : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    std::printf("deaths of a rank started by hand: %d tried, %d right\n", tried, right);
  }
  static inline int tried = 0, right = 0;
};
INSTANTIATE_TEST_SUITE_P(Ways, RankDeathByHand, ::testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name(); });

TEST_P(RankDeathByHand, EndsSurvivorsAndNamesDeadRank) {
  const auto& [manner, phase, victim] = GetParam();
  ++tried;
  const TemporaryFolder folder;
  ByHand ranks(folder, GetParam());
  ASSERT_TRUE(strike(GetParam(), ranks));
  const auto begin = std::chrono::steady_clock::now();
  const int speaker = victim == 0 ? 1 : 0;
  int in_gradient = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const Result result = ranks.rank(rank).wait(60);
    EXPECT_EQ(result.exit_code, 138) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank " + std::to_string(victim) + " on "), HasSubstr(manner.told)));
    EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
    const std::string page = rank == speaker ? "  try: " : "rank " + std::to_string(speaker) + " says more";
    EXPECT_THAT(result.err, HasSubstr(page));
    in_gradient += result.err.find("of gradient bucket") == std::string::npos ? 0 : 1;
  }
  // The ranks that need the victim's gradient wait in it. If the victim dies while writing a piece, at least the
  // receiver of that piece waits.
  EXPECT_GE(in_gradient, phase == "Forward" ? kRanks - 1 : phase == "Collective" ? 1 : 0);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), manner.seconds);
  ranks.rank(victim).signal(SIGKILL);
  ranks.rank(victim).wait(5);
  EXPECT_THAT(ranks.family().living(), ::testing::IsEmpty());
  if (victim != 0) {
    const auto summary = nlohmann::json::parse(read_file(ranks.run() + "/summary.json"));
    EXPECT_EQ(summary.at("exit_code"), 138);
    EXPECT_THAT(summary.at("reason").get<std::string>(), HasSubstr(manner.told));
    EXPECT_THAT(read_file(ranks.run() + "/ledger.jsonl"), HasSubstr("\"kind\":\"end\""));
  }
  if (!HasFailure()) ++right;
}

// With the real torchrun

const std::string kTorchrun = std::string(GPUTRAIN_SOURCE_DIR) + "/.deps/bin/torchrun";

class RankDeathUnderTorchrun : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    std::printf("deaths of a rank under torchrun: %d tried, %d right\n", tried, right);
  }
  static inline int tried = 0, right = 0;
};
INSTANTIATE_TEST_SUITE_P(Ways, RankDeathUnderTorchrun,
                         ::testing::Values(Case{kKilled, "Start", 1}, Case{kKilled, "Training", 0},
                                           Case{kCrashed, "Forward", 1}, Case{kExited, "Collective", 0},
                                           Case{kKilled, "Save", 1}, Case{kStopped, "Collective", 1}),
                         [](const auto& entry) { return entry.param.name(); });

/// Waits until the run has reached the phase and strikes the rank, unless the rank strikes itself.
bool strike(const Case& death, Program& torchrun, const ProcessFamily& family, const std::string& run) {
  if (death.is_inside()) return torchrun.prints("step    1/");
  while (death.phase == "Save" && !is_saving(run)) {
    if (!torchrun.is_running()) return false;
  }
  if (death.phase == "Start" && !torchrun.prints("hosts ")) return false;
  if (death.phase == "Training" && !torchrun.prints("step    7/")) return false;
  return ::kill(family.rank(death.rank), death.manner.signal) == 0;
}

/// During the start, SIGTERM ends a rank at once. torchrun polls for deaths ten times a second, so it may end all other
/// ranks before the first of them has reported who died.
int times_stopped_at_once(const std::string& err) {
  const std::string told = "stopped at once, on request";
  int times = 0;
  for (size_t at = err.find(told); at != std::string::npos; at = err.find(told, at + told.size())) ++times;
  return times;
}

TEST_P(RankDeathUnderTorchrun, EndsJobAndNamesDeadRank) {
  if (::access(kTorchrun.c_str(), X_OK) != 0) {
    ASSERT_EQ(std::getenv("CI"), nullptr);
    GTEST_SKIP() << "torchrun is missing: run scripts/setup.sh --tests";
  }
  const Case& death = GetParam();
  ++tried;
  const TemporaryFolder folder;
  ProcessFamily family;
  Words command{kTorchrun,   "--no-python",      "--standalone",        "--local-addr",
                "127.0.0.1", "--nproc-per-node", std::to_string(kRanks)};
  const Words rank = command_of(folder, death);
  command.insert(command.end(), rank.begin(), rank.end());
  Program torchrun(command, environment_of(family, death));
  ASSERT_TRUE(strike(death, torchrun, family, folder / "run"));
  family.remember();
  const auto begin = std::chrono::steady_clock::now();
  const Result result = torchrun.wait(100);
  // torchrun gives the ranks it ends half a minute, which a stopped rank uses up. Otherwise torchrun itself needs some
  // seconds on a busy machine.
  const double seconds = death.manner.seconds + (death.manner.signal == SIGSTOP ? 30 : 15);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), seconds);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::string victim = std::to_string(death.rank);
  if (death.phase != "Start" || times_stopped_at_once(result.err) < kRanks - 1) {
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank " + victim + " on "), HasSubstr(death.manner.told)));
  }
  if (death.manner.signal != SIGSTOP) {
    EXPECT_THAT(result.err.substr(std::min(result.err.size(), result.err.find("Root Cause"))),
                HasSubstr("rank      : " + victim + " "));
  }
  EXPECT_TRUE(family.ends_within(5)) << ::testing::PrintToString(family.living());
  if (!HasFailure()) ++right;
}

}  // namespace
}  // namespace gputrain::testing_support
