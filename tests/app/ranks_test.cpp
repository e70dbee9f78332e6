#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "app/program.hpp"
#include "app/rank_runs.hpp"
#include "app/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

const std::string kTorchrun = GPUTRAIN_SOURCE_DIR "/.deps/bin/torchrun";

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

TEST_F(Ranks, AHalfSetEnvironmentIsExitCode2) {
  Program program({gputrain_path(), "run", write_gpt_job(folder_)}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
}

}  // namespace
}  // namespace gputrain::testing_support
