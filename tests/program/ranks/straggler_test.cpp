// One of four ranks is slow in a phase of its steps: it is named, with the phase.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/endless_run.hpp"

namespace gputrain::testing_support {
namespace {

class Straggler : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Phases, Straggler, ::testing::Values("load", "forward", "backward", "optimizer"),
                         [](const auto& entry) { return std::string(entry.param); });

std::string in_words(const std::string& phase) { return phase == "load" ? "data wait" : phase; }

TEST_P(Straggler, IsNamedWithinTwentySteps) {
  const TemporaryFolder folder;
  std::vector<std::string> command = endless(folder);
  command.insert(command.begin() + 1, {"launch", "--nproc-per-node", "4"});
  Program program(command, {{"LD_PRELOAD", SLOW_PHASE},
                            {"SLOW_PHASE", GetParam()},
                            {"SLOW_RANK", "2"},
                            {"SLOW_SECONDS", "0.15"},
                            {"OMP_NUM_THREADS", "1"}});
  ASSERT_TRUE(program.prints("slow    rank ", 120));
  program.signal(SIGTERM);
  program.wait();
  std::istringstream lines(read_file(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.value("message", "").starts_with("slow")) continue;
    EXPECT_THAT(record["message"].get<std::string>(),
                ::testing::MatchesRegex("slow rank 2 @ .*:2 \\+[0-9]+ %, " + in_words(GetParam())));
    EXPECT_LE(record["step"], 20);
    return;
  }
  FAIL() << "no straggler in metrics.jsonl";
}

}  // namespace
}  // namespace gputrain::testing_support
