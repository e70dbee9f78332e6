// Runs that a server of Weights & Biases shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WandbRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.prints("listening"));
    std::getline(std::ifstream(folder_ / "address"), address_);
    environment_ = {{"WANDB_BASE_URL", address_}, {"WANDB_API_KEY", std::string(40, 'k')}, {"no_proxy", "127.0.0.1"}};
  }
  std::vector<std::string> command(const std::string& verb, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{verb, job_, "--output-dir", folder_ / "run"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  json shown() const { return json::parse(read_file(folder_ / "runs.json"))["runs"]; }
  static std::vector<int64_t> steps(const json& run) {
    std::vector<int64_t> steps;
    for (const json& row : run["rows"]) steps.push_back(row["_step"]);
    return steps;
  }

  const TemporaryFolder folder_;
  Program server_{{"python3", GPUTRAIN_SOURCE_DIR "/tests/monitor/fake_wandb.py", folder_.path().string()}};
  std::string address_;
  std::map<std::string, std::string> environment_;
  const std::string job_ = write_gpt_job(
      folder_, "log: {interval: 1, wandb: {project: corpus}}\ncheckpoint: {interval: 5}\neval: {interval: 5}\n",
      "{max_steps: 12, global_batch_size: 8}");
};

TEST_F(WandbRun, GoesOnAsTheSameRunAfterAKill) {
  std::vector<std::string> words = command("run", {"--set", "train.max_steps=1000000"});
  words.insert(words.begin(), gputrain_path());
  Program killed(words, environment_);
  ASSERT_TRUE(killed.prints("\nwandb   " + address_ + "/me/corpus/runs/"));
  ASSERT_TRUE(killed.prints("step    11/"));
  killed.signal(SIGKILL);
  ASSERT_EQ(killed.wait().exit_code, 128 + SIGKILL);
  const json before = shown();
  ASSERT_EQ(before.size(), 1U);
  const int64_t last = json::parse(read_file(folder_ / "run/ckpt/latest/manifest.json"))["step"];

  const std::string end = std::to_string(last + 5);
  const Result resumed = gputrain(command("run", {"--accept", "--set", "train.max_steps=" + end}), environment_);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const json after = shown();
  ASSERT_EQ(after.size(), 1U);
  const json& run = after.begin().value();
  EXPECT_THAT(resumed.out, HasSubstr("\nwandb   " + address_ + "/me/corpus/runs/" + run["name"].get<std::string>()));
  std::vector<int64_t> each;
  for (int64_t step = 1; step <= last + 5; ++step) each.push_back(step);
  EXPECT_EQ(steps(run), each);
  EXPECT_EQ(run["state"], "finished");
  EXPECT_EQ(run["continued"], 1);
  EXPECT_TRUE(run["summary"].contains("val/loss"));
}

TEST_F(WandbRun, TrainsToTheEndWithAWrongKey) {
  auto wrong = environment_;
  wrong["WANDB_API_KEY"] = std::string(40, 'w');
  const Result result = gputrain(command("run"), wrong);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("answers 401"), HasSubstr("WANDB_API_KEY")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("did not get 12 rows of the run"), HasSubstr("`wandb sync ")));
  EXPECT_THAT(result.out + result.err, Not(HasSubstr(wrong["WANDB_API_KEY"])));
  EXPECT_TRUE(shown().empty());

  const Result again = gputrain(command("run"), environment_);  // as the warning says; nothing is left to train
  EXPECT_EQ(again.exit_code, 0) << again.err;
  ASSERT_EQ(shown().size(), 1U);
  EXPECT_EQ(steps(shown().begin().value()).size(), 12U);
  EXPECT_EQ(shown().begin().value()["state"], "finished");
}

TEST_F(WandbRun, IsOneForEachTrialOfASweep) {
  const Result result = gputrain(
      command("sweep", {"--set", "sweep={method: grid, parameters: [{key: optimizer.lr, values: [0.01, 0.02]}]}"}),
      environment_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(shown().size(), 2U);
  for (const json& run : shown()) EXPECT_EQ(steps(run).size(), 12U) << run["name"];
}

}  // namespace
}  // namespace gputrain::testing_support
