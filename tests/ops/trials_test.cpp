#include "../../src/ops/dispatch/trials.hpp"

#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gputrain::ops {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct TrialsTest : testing::Test {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("trials_" + std::to_string(::getpid()));
  ~TrialsTest() override { std::filesystem::remove_all(folder); }

  std::vector<std::string> interrupted() const {
    std::vector<std::string> all;
    Trials(folder).take_interrupted([&](const auto& marks) { all.insert(all.end(), marks.begin(), marks.end()); });
    return all;
  }

  /// A process that runs `work` and is then killed.
  template <class Work>
  static void kill_after(const Work& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
};

TEST_F(TrialsTest, NameTheInnermostOneOfAKilledProcess) {
  kill_after([&] {
    auto* trials = new Trials(folder);
    const auto outer = trials->begin("outer", "mark of outer");
    { const auto before = trials->begin("before", "mark of before"); }
    const auto inner = trials->begin("inner", "mark of inner");
    ::raise(SIGKILL);
  });
  EXPECT_THAT(interrupted(), ElementsAre("mark of inner"));
  EXPECT_THAT(interrupted(), IsEmpty()) << "taken once";
}

TEST_F(TrialsTest, CountOnceIfAllRanksAreKilled) {
  for (int rank = 0; rank < 3; ++rank) {
    kill_after([&] {
      auto* trials = new Trials(folder);
      const auto trial = trials->begin("product", "mark of product");
      ::raise(SIGKILL);
    });
  }
  EXPECT_THAT(interrupted(), ElementsAre("mark of product"));
}

TEST_F(TrialsTest, ForgetThoseThatEnded) {
  kill_after([&] {
    auto* trials = new Trials(folder);
    trials->begin("product", "mark of product").reset();
  });
  EXPECT_THAT(interrupted(), IsEmpty());
}

TEST_F(TrialsTest, LeaveThoseOfLivingProcesses) {
  Trials trials(folder);
  const auto trial = trials.begin("product", "mark of product");
  EXPECT_THAT(interrupted(), IsEmpty());
}

TEST_F(TrialsTest, TellAListenerAndCount) {
  Trials trials("");
  std::vector<std::string> told;
  trials.set_listener(
      [&](int64_t count, std::string_view name) { told.push_back(std::to_string(count) + " " + std::string(name)); });
  { const auto outer = trials.begin("outer", "a"), inner = trials.begin("inner", "b"); }
  EXPECT_THAT(told, ElementsAre("1 outer", "2 inner"));
  EXPECT_EQ(trials.done().count, 2);
}

}  // namespace
}  // namespace gputrain::ops
