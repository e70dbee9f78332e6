// gputrain as PID 1 of a container, alone and under tini. The kernel does not deliver unhandled signals to PID 1, and
// makes it the parent of all orphans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>

#include "support/needs.hpp"
#include "support/process_family.hpp"
#include "support/program.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using InitWords = std::vector<std::string>;

/// What these tests need and this machine lacks; empty: nothing.
std::string missing_for_init(bool needs_tini) {
  const std::string missing =
      testing::missing_program(needs_tini ? InitWords{"unshare", "tini"} : InitWords{"unshare"});
  return missing.empty() ? testing::no_own_processes() : missing;
}

/// An endless `gputrain launch` or `run` as PID 1 of a PID namespace, with or without tini as its parent.
class FirstProcess {
 public:
  FirstProcess(const std::string& verb, bool has_tini) {
    InitWords command{"unshare", "--pid", "--fork", "--mount-proc"};
    if (has_tini) command.insert(command.end(), {"tini", "--"});
    command.push_back(gputrain_path());
    if (verb == "launch") command.insert(command.end(), {"launch", "--nproc-per-node", "2"});
    command.insert(command.end(),
                   {"run", write_gpt_job(folder_, "log: {interval: 1}\n"), "--output-dir", folder_ / "run", "--set",
                    "train.max_steps=1000000", "--set", "eval.interval=null", "--set", "checkpoint.interval=null"});
    auto environment = family_.environment();
    environment["OMP_NUM_THREADS"] = "1";
    program_.emplace(command, environment);
  }

  Program& program() { return *program_; }
  ProcessFamily& family() { return family_; }

  /// Its PID outside the namespace.
  pid_t id() const {
    const std::string unshare = std::to_string(program_->id());
    return std::atoi(read_file("/proc/" + unshare + "/task/" + unshare + "/children").c_str());
  }

  /// Ended children of PID 1 that are not yet reaped.
  int zombies() const {
    int count = 0;
    const std::string init = std::to_string(id());
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      if (std::atoi(entry.path().filename().c_str()) == 0) continue;
      const std::string text = read_file(entry.path() / "stat");
      std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
      std::string state, parent;
      if (fields >> state >> parent && state == "Z" && parent == init) ++count;
    }
    return count;
  }

  bool collects_all_within(double seconds) const {
    const auto latest = std::chrono::steady_clock::now() + testing::patience(std::chrono::duration<double>(seconds));
    while (zombies() > 0) {
      if (std::chrono::steady_clock::now() > latest) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // polls: there is no event for it
    }
    return true;
  }

 private:
  TemporaryFolder folder_;
  ProcessFamily family_;
  std::optional<Program> program_;
};

struct FirstProcessCase {
  std::string verb;
  bool has_tini;

  std::string name() const { return verb + (has_tini ? "UnderTini" : "Alone"); }
  friend void PrintTo(const FirstProcessCase& it, std::ostream* to) { *to << it.name(); }
};

class InitProcess : public ::testing::TestWithParam<FirstProcessCase> {
 protected:
  void SetUp() override { GPUTRAIN_SKIP_FOR(missing_for_init(GetParam().has_tini)); }
};
INSTANTIATE_TEST_SUITE_P(Cases, InitProcess,
                         ::testing::Values(FirstProcessCase{"run", false}, FirstProcessCase{"run", true},
                                           FirstProcessCase{"launch", false}, FirstProcessCase{"launch", true}),
                         [](const auto& entry) { return entry.param.name(); });

TEST_P(InitProcess, SavesAndExitsWithSignalCode) {
  const bool is_interrupt = GetParam().has_tini == (GetParam().verb == "run");
  FirstProcess first(GetParam().verb, GetParam().has_tini);
  ASSERT_TRUE(first.program().prints("step    5/"));
  kill(first.id(), is_interrupt ? SIGINT : SIGTERM);
  const Result result = first.program().wait(60);
  EXPECT_EQ(result.exit_code, is_interrupt ? 130 : 143) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", saved"));
  EXPECT_THAT(first.family().living(), IsEmpty());
}

TEST_P(InitProcess, LeavesNoProcessWhenKilled) {
  FirstProcess first(GetParam().verb, GetParam().has_tini);
  ASSERT_TRUE(first.program().prints("step    5/"));
  first.family().remember();
  kill(first.id(), SIGKILL);
  EXPECT_NE(first.program().wait(20).exit_code, 0);
  EXPECT_TRUE(first.family().ends_within(10)) << ::testing::PrintToString(first.family().living());
}

TEST_P(InitProcess, ReapsOrphans) {
  FirstProcess first(GetParam().verb, GetParam().has_tini);
  ASSERT_TRUE(first.program().prints("step    5/"));
  // Like a shell that a user opens in the container: PID 1 adopts the children that it leaves.
  const std::string init = std::to_string(first.id());
  const Result left =
      Program({"nsenter", "--target", init, "--pid", "/bin/sh", "-c", "sleep 0.1 & sleep 0.1 & exit 0"}).wait(20);
  ASSERT_EQ(left.exit_code, 0) << left.err;
  first.program().forget_output();
  ASSERT_TRUE(first.program().prints("\nstep "));
  EXPECT_TRUE(first.collects_all_within(10)) << first.zombies();
}

TEST(LoneInitProcess, ReapsRanksOfDeadAgent) {
  GPUTRAIN_SKIP_FOR(missing_for_init(false));
  FirstProcess first("launch", false);
  ASSERT_TRUE(first.program().prints("step    5/"));
  kill(first.family().agent(), SIGKILL);
  ASSERT_TRUE(first.program().prints("start 2  "));
  EXPECT_TRUE(first.collects_all_within(10)) << first.zombies();
}

// The kernel does not deliver signals to PID 1 that it does not handle.
TEST(LoneInitProcess, ExitsOnHangupAndQuit) {
  GPUTRAIN_SKIP_FOR(missing_for_init(false));
  for (const auto& [signal, code] : std::map<int, int>{{SIGHUP, 143}, {SIGQUIT, 131}}) {
    FirstProcess first("run", false);
    ASSERT_TRUE(first.program().prints("step    5/"));
    kill(first.id(), signal);
    EXPECT_EQ(first.program().wait(20).exit_code, code);
  }
}

}  // namespace
}  // namespace gputrain::testing_support
