// What shells are told about a word, and the lines with which they ask.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const Result& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> lines;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> completed(std::vector<std::string> words) {
  words.insert(words.begin(), "complete");
  return lines_of(gputrain(words));
}

TEST(Completion, KnowsCommandsOptionsAndTheirChoices) {
  EXPECT_THAT(completed({""}), AllOf(Contains("run"), Contains("sweep"), Contains("ckpt"), Not(Contains("agent"))));
  EXPECT_THAT(completed({"ckpt", "p"}), ElementsAre("prune"));
  EXPECT_THAT(completed({"run", "job.yaml", "--sm"}), ElementsAre("--smoke"));
  EXPECT_THAT(completed({"eval", "job.yaml", "--on", ""}), ElementsAre("test", "train", "val"));
  EXPECT_THAT(completed({"launch", "--nproc-per-node", "2", "run", "job.yaml", "--acc"}), ElementsAre("--accept"));
}

TEST(Completion, LeavesFilesToTheShell) {
  EXPECT_THAT(completed({"run", "jo"}), IsEmpty());
  EXPECT_THAT(completed({"run", "job.yaml", "--output-dir", ""}), IsEmpty());
}

TEST(Completion, KnowsKeysAndEntries) {
  EXPECT_THAT(completed({"run", "job.yaml", "--set", "optim"}), ElementsAre("optimizer."));
  EXPECT_THAT(completed({"run", "job.yaml", "--set", "optimizer.l"}),
              AllOf(Contains("optimizer.lr="), Contains("optimizer.layer_decay="), Each(StartsWith("optimizer.l"))));
  EXPECT_THAT(completed({"describe", "resnet1"}), ElementsAre("resnet101", "resnet152", "resnet18"));
  EXPECT_THAT(completed({"list", "opt"}), ElementsAre("optimizer"));
}

TEST(Completion, BashAsks) {
  const std::string lines =
      "source <(\"$0\" completion bash); COMP_LINE=\"DATA=x $0 eval job.yaml --on v\"; COMP_POINT=${#COMP_LINE}; "
      "_gputrain; printf '%s\\n' \"${COMPREPLY[@]}\"";
  Program bash({"/bin/bash", "-c", lines, gputrain_path()});
  EXPECT_THAT(lines_of(bash.wait()), ElementsAre("val"));
}

TEST(Completion, RefusesOtherShells) { EXPECT_EQ(gputrain({"completion", "powershell"}).exit_code, 2); }

}  // namespace
}  // namespace gputrain::testing_support
