#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/program.hpp"
#include "app/small_job.hpp"
#include "support/ports.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

const std::string kTorchrun = GPUTRAIN_SOURCE_DIR "/.deps/bin/torchrun";

/// A training metric of a run, one value per step.
std::vector<double> values(const std::string& metrics, const std::string& name) {
  std::istringstream lines(read_file(metrics));
  std::vector<double> values;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["kind"] == "train") values.push_back(object.at(name));
  }
  return values;
}

void expect_equal_losses(const std::string& a, const std::string& b, double tolerance) {
  const auto expected = values(a, "train/loss"), actual = values(b, "train/loss");
  ASSERT_EQ(expected.size(), 20U);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "step " << i + 1;
}

Result two_ranks(const std::string& job, const std::string& output, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{kTorchrun,
                                     "--no-python",
                                     "--nproc-per-node",
                                     "2",
                                     "--rdzv-backend",
                                     "c10d",
                                     "--rdzv-endpoint",
                                     "127.0.0.1:0",
                                     "--local-addr",
                                     "127.0.0.1",
                                     gputrain_path(),
                                     "run",
                                     job,
                                     "--output-dir",
                                     output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Program(arguments).wait();
}

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(kTorchrun)) return;
    ASSERT_EQ(std::getenv("CI"), nullptr) << kTorchrun << " is missing";
    GTEST_SKIP() << kTorchrun << " is missing: run scripts/setup.sh --tests";
  }
  TemporaryFolder folder_;
};

TEST_F(Ranks, TwoUnderTorchrunEqualOneIn64Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  const Result result = two_ranks(job, folder_ / "two");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 ranks"));
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

TEST_F(Ranks, AccumulationEqualsOneLargeBatchIn64Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "four", "--set", "train.micro_batch_size=2"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "uneven", "--set", "train.micro_batch_size=3"}).exit_code,
            0);
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "four/metrics.jsonl", 1e-9);
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "uneven/metrics.jsonl", 1e-9);
}

TEST_F(Ranks, AndAccumulationGiveTheFirstStepIn32Bits) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n"), fp32 = "precision=fp32";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one", "--set", fp32}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "accumulated", "--set", fp32, "--set",
                      "train.micro_batch_size=3"})
                .exit_code,
            0);
  ASSERT_EQ(two_ranks(job, folder_ / "two", {"--set", fp32}).exit_code, 0);
  for (const std::string name : {"train/loss", "train/grad_norm"}) {
    const double expected = values(folder_ / "one/metrics.jsonl", name).at(0);
    for (const std::string other : {"accumulated", "two"}) {
      const double actual = values(folder_ / (other + "/metrics.jsonl"), name).at(0);
      EXPECT_NEAR(actual, expected, 1e-5 * expected) << name << " " << other;
    }
  }
}

TEST_F(Ranks, TwoResumeWhatOneSaved) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "two"}).exit_code, 0);
  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  const Result result = two_ranks(job, folder_ / "two");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

/// Starts ranks by hand, and returns rank 0's result; the others must end as it does.
Result ranks(int world, const std::string& job, const std::string& output, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{gputrain_path(), "run", job, "--output-dir", output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const std::string port = std::to_string(::gputrain::testing::free_port()), size = std::to_string(world);
  std::vector<std::unique_ptr<Program>> programs;
  for (int rank = 0; rank < world; ++rank) {
    const std::string number = std::to_string(rank);
    programs.push_back(std::make_unique<Program>(
        arguments, std::map<std::string, std::string>{{"RANK", number},
                                                      {"LOCAL_RANK", number},
                                                      {"WORLD_SIZE", size},
                                                      {"LOCAL_WORLD_SIZE", size},
                                                      {"MASTER_ADDR", "127.0.0.1"},
                                                      {"MASTER_PORT", port}}));
  }
  Result first = programs[0]->wait();
  for (size_t rank = 1; rank < programs.size(); ++rank) EXPECT_EQ(programs[rank]->wait().exit_code, first.exit_code);
  return first;
}

const std::vector<std::string> kSharded{"--set", "parallel.shard=optimizer"};

class Sharding : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

// The 8 samples of a step at once, or one after the other; three ranks have 2, 3 and 3.
TEST_F(Sharding, OfTheOptimizerTrainsAsOneRankDoes) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  for (const int world : {2, 3, 4}) {
    for (const bool accumulates : {false, true}) {
      const std::string output = folder_ / ("of" + std::to_string(world) + (accumulates ? "accumulated" : ""));
      std::vector<std::string> more = kSharded;
      if (accumulates) more.insert(more.end(), {"--set", "train.micro_batch_size=1"});
      const Result result = ranks(world, job, output, more);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      expect_equal_losses(folder_ / "one/metrics.jsonl", output + "/metrics.jsonl", 1e-9);
    }
  }
}

TEST_F(Sharding, SavedByFourRanksIsResumedByAnyNumber) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  const Result four = ranks(4, job, folder_ / "four", kSharded);
  ASSERT_EQ(four.exit_code, 0) << four.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "four/ckpt/step-00000010/optimizer-00004-of-00004.safetensors"));
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "four"}).exit_code, 0);
  const std::vector<std::pair<int, std::vector<std::string>>> ways{{1, {}}, {2, kSharded}, {3, kSharded}, {4, kSharded}, {2, {}}};
  for (const auto& [world, more] : ways) {
    const std::string again = folder_ / ("again" + std::to_string(world) + (more.empty() ? "" : "sharded"));
    std::filesystem::copy(folder_ / "four", again, std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(again + "/ckpt/step-00000020");
    const Result result = ranks(world, job, again, more);
    ASSERT_EQ(result.exit_code, 0) << world << result.err;
    EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
    expect_equal_losses(folder_ / "one/metrics.jsonl", again + "/metrics.jsonl", 1e-9);
  }
}

TEST_F(Sharding, StartsFromWhatOneRankSaved) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "one"}).exit_code, 0);
  std::filesystem::copy(folder_ / "one", folder_ / "two", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_ / "two/ckpt/step-00000020");
  const Result result = ranks(2, job, folder_ / "two", kSharded);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
}

// Bit for bit, which a state that is not saved or not read back would not survive.
TEST_F(Sharding, ResumesAtTheSameNumberOfRanksExactly) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\ncheckpoint: {interval: 10}\n");
  ASSERT_EQ(ranks(3, job, folder_ / "whole", kSharded).exit_code, 0);
  std::filesystem::copy(folder_ / "whole", folder_ / "cut", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_ / "cut/ckpt/step-00000020");
  ASSERT_EQ(ranks(3, job, folder_ / "cut", kSharded).exit_code, 0);
  const Result difference = gputrain({"ckpt", "diff", folder_ / "whole", folder_ / "cut"});
  EXPECT_EQ(difference.exit_code, 0) << difference.out;
}

TEST_F(Ranks, AHalfSetEnvironmentIsExitCode2) {
  Program program({gputrain_path(), "run", write_gpt_job(folder_)}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
}

}  // namespace
}  // namespace gputrain::testing_support
