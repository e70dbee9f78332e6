#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

/// Dropout, accumulation and intervals that no stop divides: a resumed run must restore everything.
constexpr const char* kDemandingJob =
    "log: {interval: 5}\neval: {interval: 60}\ncheckpoint: {interval: 25}\nlr_scheduler: {type: cosine, warmup: 4}\n";

std::vector<std::string> demanding_run(const TemporaryFolder& folder, const std::string& job, const std::string& name) {
  return {gputrain_path(),
          "run",
          job,
          "--output-dir",
          folder / name,
          "--set",
          "model.config.dropout=0.1",
          "--set",
          "train.micro_batch_size=3",
          "--set",
          "train.max_steps=200",
          "--set",
          "precision=fp32",
          "--set",
          "data.num_workers=1"};
}

TEST(Resume, MatchesUninterruptedAfterThreeSignals) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, kDemandingJob);
  ASSERT_EQ(Program(demanding_run(folder, job, "whole")).wait().exit_code, 0);
  for (const auto& [line, signal, code] :
       {std::tuple{"step    5/", SIGTERM, 143}, std::tuple{"step    40/", SIGINT, 130},
        std::tuple{"eval    60", SIGTERM, 143}}) {
    Program attempt(demanding_run(folder, job, "parts"));
    ASSERT_TRUE(attempt.prints(line)) << line;
    attempt.signal(signal);
    const Result result = attempt.wait();
    EXPECT_EQ(result.exit_code, code) << result.out << result.err;
  }
  const Result last = Program(demanding_run(folder, job, "parts")).wait();
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, HasSubstr("resume  step "));
  EXPECT_EQ(read_file(folder / "whole/model.safetensors"), read_file(folder / "parts/model.safetensors"));
  EXPECT_EQ(timeless_metrics(folder / "whole/metrics.jsonl"), timeless_metrics(folder / "parts/metrics.jsonl"));
}

TEST(Resume, CutsCurveAndLogAndKeepsTheRest) {
  const TemporaryFolder folder;
  const std::string job =
      write_gpt_job(folder, "log: {interval: 1}\neval: {interval: 6}\ncheckpoint: {interval: 5, keep_last: 9}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const std::string curve = timeless_metrics(folder / "run/metrics.jsonl");
  for (const char* step : {"20", "18", "15"}) std::filesystem::remove_all(folder / "run/ckpt/step-000000" + step);
  ASSERT_EQ(gputrain(run).exit_code, 0);
  EXPECT_EQ(timeless_metrics(folder / "run/metrics.jsonl"), curve);
  EXPECT_THAT(read_file(folder / "run/metrics.jsonl"), HasSubstr("resumed at step 12, attempt 2"));
  EXPECT_THAT(read_file(folder / "run/metrics.jsonl.left"), HasSubstr("\"step\":13"));
  const std::string log = read_file(folder / "run/logs/rank_0000.log"),
                    left = read_file(folder / "run/logs/rank_0000.log.left");
  const size_t mark = log.find("resumed at step 12, attempt 2");
  ASSERT_NE(mark, std::string::npos);
  for (const char* once : {" step    12/20", " step    13/20", " step    20/20", " eval    18 "}) {
    EXPECT_EQ(log.find(once), log.rfind(once)) << once;
    EXPECT_EQ(log.find(once) > mark, std::string(once) != " step    12/20") << once;
  }
  EXPECT_THAT(left, HasSubstr(" step    13/20"));
  EXPECT_THAT(left, ::testing::Not(HasSubstr(" step    12/20")));
}

TEST(Resume, NamesAndSkipsTornCheckpoint) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::resize_file(folder / "run/ckpt/step-00000020/model.safetensors", 100);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step-00000020"));
  EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
}

TEST(Resume, LeavesWhatLacksAFileWhereItIs) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n");
  const std::vector<std::string> run{"run", job, "--output-dir", folder / "run"};
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const std::string newest = folder / "run/ckpt/step-00000020", second = folder / "run/ckpt/step-00000015";
  std::filesystem::rename(newest + "/manifest.json", folder / "manifest.json");
  std::filesystem::remove(second + "/model.safetensors");
  auto shorter = run;
  shorter.insert(shorter.end(), {"--set", "train.max_steps=12", "--accept"});
  const Result result = gputrain(shorter);
  EXPECT_THAT(result.out, HasSubstr("resume  step 10"));
  EXPECT_THAT(result.err, HasSubstr("checkpoint skipped: " + newest + ": has no manifest\n"));
  EXPECT_THAT(result.err, HasSubstr("checkpoint skipped: " + second + "/model.safetensors: missing\n"));
  std::filesystem::rename(folder / "manifest.json", newest + "/manifest.json");
  EXPECT_THAT(gputrain(run).out, HasSubstr("resume  step 20"));
}

/// Changes a checkpoint into one that was written on a device without a CPU generator.
void take_generators_from(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "generators.safetensors", index = folder / "manifest.json";
  std::string bytes = read_file(file);
  bytes.replace(bytes.find("\"cpu\""), 5, "\"gpu\"");
  std::ofstream(file, std::ios::binary) << bytes;
  checkpoint::Sealer sealer;
  sealer.add(bytes.data(), bytes.size());
  auto manifest = checkpoint::parse_manifest(read_file(index), index);
  manifest.files.at("generators.safetensors").seal = sealer.seal();
  std::ofstream(index) << checkpoint::to_json(manifest);
}

TEST(Resume, AcceptsCheckpointOfAnotherDeviceKind) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 15}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::remove_all(folder / "run/ckpt/step-00000020");
  take_generators_from(folder / "run/ckpt/step-00000015");
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 15 "));
}

TEST(Resume, UsesTheFirstSaveIfTheSecondIsDamaged) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const std::string newest = folder / "run/ckpt/step-00000020";
  std::filesystem::copy(newest, newest + "-2");  // killed before it was read back
  std::filesystem::resize_file(newest + "-2/model.safetensors", 100);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 20 from " + newest + " "));
  EXPECT_TRUE(std::filesystem::exists(newest + "-2.bad"));
}

TEST(Resume, RefusesToStartOverWithOnlyBadCheckpoints) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::resize_file(folder / "run/ckpt/step-00000020/model.safetensors", 100);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
    EXPECT_EQ(result.exit_code, 5) << result.out;
    EXPECT_THAT(result.err, HasSubstr("none of the run's checkpoints is good"));
    EXPECT_THAT(
        read_file(folder / "run/ledger.jsonl"),
        ::testing::AllOf(HasSubstr("\"exit_code\":5,\"kind\":\"start_failed\""),
                         HasSubstr("\"reason\":\"" + folder / "run/ckpt: none of the run's checkpoints is good")));
  }
  EXPECT_EQ(gputrain({"data", "audit", folder / "run"}).exit_code, 0);
}

TEST(Resume, SkipsManifestOfAnotherStep) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 4}\n"),
                    ckpt = folder / "run/ckpt";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  std::filesystem::copy(ckpt + "/step-00000010", ckpt + "/step-00000099");
  const std::string index = ckpt + "/step-00000099/manifest.json";
  auto manifest = checkpoint::parse_manifest(read_file(index), index);
  manifest.step = 99;
  std::ofstream(index) << checkpoint::to_json(manifest);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_THAT(result.err, HasSubstr("its state is that of step 10"));
  EXPECT_THAT(result.out, HasSubstr("resume  step 20"));
}

TEST(Resume, Exits5WithoutCheckpointUnderMust) {
  const TemporaryFolder folder;
  const Result result =
      gputrain({"run", write_gpt_job(folder), "--output-dir", folder / "run", "--set", "checkpoint.resume=must"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
}

TEST(Resume, StartsOverUnderNeverKeepingEarlierRun) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--set", "checkpoint.resume=never"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "run.1/model.safetensors"));
  EXPECT_EQ(read_file(folder / "run/model.safetensors"), read_file(folder / "run.1/model.safetensors"));
}

TEST(Resume, KeepsEarlierRunBehindALinkUnderNever) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  std::filesystem::create_directories(folder / "disk/run");
  std::filesystem::create_directory_symlink("disk/run", folder / "run");
  for (const char* resume : {"auto", "never"}) {
    ASSERT_EQ(
        gputrain({"run", job, "--output-dir", folder / "run", "--set", std::string("checkpoint.resume=") + resume})
            .exit_code,
        0);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "run"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk/run/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "disk/run.1/model.safetensors"));
}

}  // namespace
}  // namespace gputrain::testing_support
