// Ranks started by hand, without anyone who would watch them but themselves: what the survivors of a death say and do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/process_family.hpp"
#include "app/program.hpp"
#include "app/small_job.hpp"
#include "support/ports.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr int kRanks = 3;

/// Three ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
class ByHand {
 public:
  ByHand(const TemporaryFolder& folder, const Words& settings) : run_(folder / "run") {
    const std::string job = write_gpt_job(folder, "log: {interval: 1}\n");
    Words command{gputrain_path(), "run", job, "--output-dir", run_};
    for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
    auto environment = family_.environment();
    environment.insert({{"LD_PRELOAD", EXIT_ON_SIGNAL},
                        {"OMP_NUM_THREADS", "1"},
                        {"WORLD_SIZE", std::to_string(kRanks)},
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
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Manner& manner : {kKilled, kCrashed, kExited}) {
    for (const std::string phase : {"Start", "Training", "Evaluation", "Save"}) {
      for (const int rank : {0, 1}) all.push_back({manner, phase, rank});
    }
  }
  for (const int rank : {0, 1}) all.push_back({kStopped, "Training", rank});
  all.push_back({kStopped, "Evaluation", 1});
  all.push_back({kStopped, "Save", 0});
  return all;
}

Words settings_of(const std::string& phase) {
  const Words endless{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=null"};
  Words more;
  if (phase == "Evaluation") {
    more = {"eval.at_start=true", "data.val.split=90%", "eval.batch_size=1", "model.config.n_layer=16"};
  } else if (phase == "Save") {
    more = {"model.config.n_embd=512", "checkpoint.interval=1"};
  }
  Words settings = endless;
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

bool is_saving(const std::string& run) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(run + "/ckpt", gone)) {
    if (entry.path().extension() == ".partial") return true;
  }
  return false;
}

/// Waits until the run is there.
bool comes_to(const std::string& phase, ByHand& ranks) {
  if (phase == "Start") return ranks.rank(0).prints("hosts ");
  if (phase == "Training") return ranks.rank(0).prints("step    7/");
  if (phase == "Evaluation") return ranks.rank(0).prints("resume  none");
  while (!is_saving(ranks.run())) {
    if (!ranks.rank(0).is_running()) return false;
  }
  return true;
}

class DeathByHand : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    std::printf("deaths of a rank started by hand: %d tried, %d right\n", tried, right);
  }
  static inline int tried = 0, right = 0;
};
INSTANTIATE_TEST_SUITE_P(Ways, DeathByHand, ::testing::ValuesIn(cases()), [](const auto& entry) {
  return entry.param.manner.name + "In" + entry.param.phase + "OfRank" + std::to_string(entry.param.rank);
});

TEST_P(DeathByHand, IsNamedByTheSurvivorsWhoEnd) {
  const auto& [manner, phase, victim] = GetParam();
  ++tried;
  const TemporaryFolder folder;
  ByHand ranks(folder, settings_of(phase));
  ASSERT_TRUE(comes_to(phase, ranks));
  ranks.rank(victim).signal(manner.signal);
  const auto begin = std::chrono::steady_clock::now();
  const int speaker = victim == 0 ? 1 : 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const Result result = ranks.rank(rank).wait(60);
    EXPECT_EQ(result.exit_code, 138) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank " + std::to_string(victim) + " on "), HasSubstr(manner.told)));
    EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
    const std::string page = rank == speaker ? "  try: " : "rank " + std::to_string(speaker) + " says more";
    EXPECT_THAT(result.err, HasSubstr(page));
  }
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

}  // namespace
}  // namespace gputrain::testing_support
