// What training does when one bad sample makes the loss or a gradient not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "gputrain/data/sample_usage.hpp"
#include "support/checkpoints.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kSamples = 120, kBatch = 6, kSteps = 40;  // two epochs

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

/// The index of the first sample that step `step` (from 1) of the first epoch uses.
int64_t sample_of_step(int64_t step) {
  return data::samples_of_step({.samples = kSamples, .global_batch = kBatch, .seed = 1337}, step - 1).samples.front();
}

/// Black images and a few white ones. The job divides brightness by so small a number that white becomes infinite.
std::string write_poisoned_job(const TemporaryFolder& folder, const std::vector<int64_t>& poisoned,
                               const std::string& extra = "") {
  std::string images = big_endian(0x803) + big_endian(kSamples) + big_endian(4) + big_endian(4);
  std::string labels = big_endian(0x801) + big_endian(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) {
    labels += static_cast<char>(i % 4 == 0 ? 0 : i % 3);
    images += std::string(16, std::count(poisoned.begin(), poisoned.end(), i) > 0 ? '\xFF' : '\0');
  }
  folder.write("data/train-images-idx3-ubyte", images);
  folder.write("data/train-labels-idx1-ubyte", labels);
  return folder.write("job.yaml",
                      "schema: 1\ndevice: cpu\nprecision: fp64\nseed: 1337\n"
                      "model: {type: mlp, config: {hidden: [8], dropout: 0.2}}\n"
                      "data: {train: {path: " +
                          folder / "data" +
                          ", format: idx}, image: {mean: [0], std: [1e-309]}}\n"
                          "train: {max_steps: " +
                          std::to_string(kSteps) + ", global_batch_size: " + std::to_string(kBatch) +
                          "}\n"
                          "optimizer: {type: adamw, lr: 1e-2}\nlog: {interval: 1}\n"
                          "checkpoint: {interval: 5, keep_last: 20}\n" +
                          extra);
}

std::vector<std::string> run_of(const TemporaryFolder& folder, const std::string& job, const std::string& choice) {
  return {"run", job, "--output-dir", folder / choice, "--set", "train.nonfinite=" + choice};
}

std::vector<nlohmann::json> ledger_of(const std::string& run, const std::string& kind) {
  std::istringstream lines(read_file(run + "/ledger.jsonl"));
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(lines, line);) {
    auto object = nlohmann::json::parse(line);
    if (object["kind"] == kind) found.push_back(std::move(object));
  }
  return found;
}

TEST(NonfiniteStop, NamesStepAndSamples) {
  const TemporaryFolder folder;
  const int64_t sample = sample_of_step(12);
  const Result result = gputrain(run_of(folder, write_poisoned_job(folder, {sample}), "stop"));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("not finite at step 12 (epoch 0, samples " + std::to_string(sample) + ","));
  EXPECT_EQ(result.err.find("not finite"), result.err.rfind("not finite")) << "told twice";
  const auto records = ledger_of(folder / "stop", "nonfinite");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0]["step"], 12);
  EXPECT_EQ(records[0]["samples"][0], sample);
  EXPECT_EQ(records[0]["sample_count"], kBatch);
}

TEST(NonfiniteStop, NamesFirstSamplesOfLongBatches) {
  const TemporaryFolder folder;
  auto arguments = run_of(folder, write_poisoned_job(folder, {17}), "stop");
  arguments.insert(arguments.end(), {"--set", "train.global_batch_size=60"});
  const Result result = gputrain(arguments);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr(" and 52 more)"));
  EXPECT_EQ(ledger_of(folder / "stop", "nonfinite")[0]["samples"].size(), 8U);
}

TEST(NonfiniteSkip, ContinuesAndIsAudited) {
  const TemporaryFolder folder;
  const Result result = gputrain(run_of(folder, write_poisoned_job(folder, {sample_of_step(12)}), "skip"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("update skipped: the loss or a gradient is not finite at step 12 (epoch 0, samples"));
  EXPECT_EQ(ledger_of(folder / "skip", "nonfinite").size(), 2U);  // once per epoch
  const Result audit = gputrain({"data", "audit", folder / "skip"});
  EXPECT_EQ(audit.exit_code, 0);
  EXPECT_THAT(audit.out, HasSubstr("2 steps whose update was skipped"));
}

TEST(NonfiniteSkip, EndsAfterTooManyInARow) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(
      folder, {sample_of_step(7), sample_of_step(8), sample_of_step(10), sample_of_step(11), sample_of_step(12)});
  auto arguments = run_of(folder, job, "skip");
  arguments.insert(arguments.end(), {"--set", "train.max_skips_in_a_row=2"});
  const Result result = gputrain(arguments);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("not finite at step 12 (epoch 0"));
  EXPECT_THAT(result.err, HasSubstr("after 2 skipped updates in a row"));

  const auto in_parts = [&](const char* steps) {
    return std::vector<std::string>{"run",
                                    job,
                                    "--accept",
                                    "--output-dir",
                                    folder / "parts",
                                    "--set",
                                    "train.nonfinite=skip",
                                    "--set",
                                    "train.max_skips_in_a_row=2",
                                    "--set",
                                    std::string("train.max_steps=") + steps};
  };
  EXPECT_EQ(gputrain(in_parts("11")).exit_code, 0);
  const Result rest = gputrain(in_parts("40"));
  EXPECT_EQ(rest.exit_code, 4);
  EXPECT_THAT(rest.err, HasSubstr("training diverged: the loss or a gradient is not finite at step 12 (epoch 0"));
}

TEST(Rollback, SkipsDataSinceTheCheckpoint) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(folder, {sample_of_step(13)});
  const Result result = gputrain(run_of(folder, job, "rollback"));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("back    to the weights of step 10, on with the data after step 13: 18 samples "
                                    "passed over (1 of at most 3)"));
  // The restored state is that of the checkpoint: weights, optimizer, random numbers.
  const std::string ckpt = folder / "rollback/ckpt/step-000000";
  EXPECT_THAT(differing_tensors(ckpt + "10", ckpt + "13"), IsEmpty());
  EXPECT_THAT(differing_tensors(ckpt + "10", ckpt + "15"), Not(IsEmpty()));
  const auto rollbacks = ledger_of(folder / "rollback", "rollback");
  ASSERT_EQ(rollbacks.size(), 2U);
  EXPECT_EQ(rollbacks[0]["step"], 13);
  EXPECT_EQ(rollbacks[0]["back_to"], 10);
  EXPECT_EQ(rollbacks[0]["passed_over"]["samples"], 18);
  EXPECT_EQ(rollbacks[1]["rollback"], 2);
}

TEST(Rollback, KeepsSpacingOfLogLines) {
  const TemporaryFolder folder;
  auto arguments = run_of(folder, write_poisoned_job(folder, {sample_of_step(13)}), "rollback");
  arguments.insert(arguments.end(), {"--set", "log.interval=4"});
  ASSERT_EQ(gputrain(arguments).exit_code, 0);
  const auto seconds_since_line = [&](const char* step) {
    const auto state =
        nlohmann::json::parse(read_file(folder / ("rollback/ckpt/step-000000" + std::string(step)) + "/state.json"));
    return state["progress"]["train_seconds"].get<double>() - state["log"]["begin_seconds"].get<double>();
  };
  EXPECT_NEAR(seconds_since_line("13"), seconds_since_line("10"), 1e-9);
}

// The evaluation after step 12 is not repeated, so that a resumed run has to leave its line.
TEST(Rollback, LeavesEvaluationsSinceTheCheckpoint) {
  const TemporaryFolder folder, clean;
  write_poisoned_job(clean, {});
  for (const std::string kind : {"images-idx3-ubyte", "labels-idx1-ubyte"})
    std::filesystem::rename(clean / ("data/train-" + kind), clean / ("data/t10k-" + kind));
  auto arguments = run_of(folder, write_poisoned_job(folder, {sample_of_step(13)}), "rollback");
  for (const std::string& set : {"data.val={path: " + (clean / "data") + ", format: idx}",
                                 std::string("eval.interval=4"), std::string("checkpoint.keep_best=0")})
    arguments.insert(arguments.end(), {"--set", set});
  const Result first = gputrain(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("to the weights of step 10, on with the data after step 13"));
  const auto whole = timeless_metrics(folder / "rollback/metrics.jsonl");
  arguments.insert(arguments.end(), {"--set", "checkpoint.resume=" + (folder / "rollback/ckpt/step-00000013")});
  const Result resumed = gputrain(arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(timeless_metrics(folder / "rollback/metrics.jsonl"), whole);
}

TEST(Rollback, ShowsSkippedDataInAudit) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain(run_of(folder, write_poisoned_job(folder, {sample_of_step(13)}), "rollback")).exit_code, 0);
  const Result result = gputrain({"data", "audit", folder / "rollback", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  const auto audit = nlohmann::json::parse(result.out);
  EXPECT_EQ(audit["passed_over"]["rollbacks"], 2);
  const auto samples = audit["passed_over"]["data"]["samples"].get<int64_t>();
  EXPECT_EQ(samples, audit["passed_over"]["steps"].get<int64_t>() * kBatch);
  EXPECT_EQ(audit["data"]["samples"], kSteps * kBatch - samples);
  EXPECT_THAT(gputrain({"data", "audit", folder / "rollback"}).out, HasSubstr("or passed over on purpose"));
}

TEST(Rollback, ResumesBitForBit) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(folder, {sample_of_step(13)});
  ASSERT_EQ(gputrain(run_of(folder, job, "rollback")).exit_code, 0);
  const auto whole = timeless_metrics(folder / "rollback/metrics.jsonl");
  const auto weights = read_file(folder / "rollback/model.safetensors");
  for (const int step : {13, 15}) {
    const std::string from = folder / ("rollback/ckpt/step-000000" + std::to_string(step));
    auto arguments = run_of(folder, job, "rollback");
    arguments[3] = folder / ("from" + std::to_string(step));
    arguments.insert(arguments.end(), {"--set", "checkpoint.resume=" + from});
    const Result result = gputrain(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(read_file(arguments[3] + "/model.safetensors"), weights);
    EXPECT_THAT(whole, ::testing::EndsWith(timeless_metrics(arguments[3] + "/metrics.jsonl")));
  }
}

TEST(Rollback, AllowsReplayOfStepsAroundIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain(run_of(folder, write_poisoned_job(folder, {sample_of_step(13)}), "rollback")).exit_code, 0);
  const std::string run = folder / "rollback";
  for (const char* step : {"12", "13", "14", "20"}) {  // step 12 was taken, and later skipped
    const Result result = gputrain({"replay", run, "--step", step});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  std::filesystem::remove_all(run + "/ckpt/step-00000013");
  std::filesystem::remove_all(run + "/ckpt/step-00000015");
  const Result across = gputrain({"replay", run, "--step", "18"});
  EXPECT_EQ(across.exit_code, 2);
  EXPECT_THAT(across.err, HasSubstr("rolled back at step 13, between step 10"));
}

TEST(Rollback, IsLimitedOverAllAttempts) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(folder, {sample_of_step(13)}, "");
  auto arguments = run_of(folder, job, "rollback");
  arguments.insert(arguments.end(), {"--set", "train.max_rollbacks=1"});
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second attempt resumes after the rollback of the first
    const Result result = gputrain(arguments);
    EXPECT_EQ(result.exit_code, 4) << result.out;
    EXPECT_THAT(result.err, HasSubstr("(epoch 1"));
    EXPECT_THAT(result.err, HasSubstr("after 1 rollback"));
  }
}

TEST(Rollback, IsRefusedWithoutCheckpoint) {
  const TemporaryFolder folder;
  const Result result = gputrain(run_of(folder, write_poisoned_job(folder, {sample_of_step(3)}), "rollback"));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("at step 3 (epoch 0"));
  EXPECT_THAT(result.err, HasSubstr("there is no checkpoint yet to go back to"));
}

TEST(Rollback, CoversTheLastStep) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(folder, {sample_of_step(13)});
  auto arguments = run_of(folder, job, "rollback");
  arguments.insert(arguments.end(), {"--set", "train.max_steps=13"});
  const Result result = gputrain(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("back    to the weights of step 10"));
  const std::string ckpt = folder / "rollback/ckpt/step-000000";
  EXPECT_THAT(differing_tensors(ckpt + "10", ckpt + "13"), IsEmpty());
}

TEST(NonfiniteStep, ExcludesLossScaleOverflow) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--set", "precision=fp16", "--set",
                                  "optimizer.lr=1e-3", "--set", "train.nonfinite=stop"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(ledger_of(folder / "run", "nonfinite").empty());
}

TEST(NonfiniteStep, IsLoggedAsNoUpdate) {
  const TemporaryFolder folder;
  const Result result =
      gputrain({"run", write_gpt_job(folder, "log: {interval: 1}\n"), "--output-dir", folder / "run", "--set",
                "precision=fp16", "--set", "optimizer.lr=1e6", "--set", "train.max_steps=3"});
  EXPECT_THAT(result.out, ::testing::ContainsRegex(" gnorm nan +lr .* no update\n"));
}

TEST(Rollback, WorksOnTwoRanksAsOnOne) {
  const TemporaryFolder folder;
  const std::string job = write_poisoned_job(folder, {sample_of_step(13)});
  const Result result = ranks(2, job, folder / "rollback", {"--set", "train.nonfinite=rollback"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(ledger_of(folder / "rollback", "rollback").size(), 2U);
  EXPECT_EQ(gputrain({"data", "audit", folder / "rollback"}).exit_code, 0);
  const std::string ckpt = folder / "rollback/ckpt/step-000000";
  EXPECT_THAT(differing_tensors(ckpt + "10", ckpt + "13"), IsEmpty());
}

}  // namespace
}  // namespace gputrain::testing_support
