// `gputrain bench train`, as a user calls it.
#include "gputrain/inspect/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gputrain/device/runtime.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BenchTrain : public ::testing::Test {
 protected:
  Result bench(std::vector<std::string> more, const std::string& limit = "unlimited",
               std::map<std::string, std::string> environment = {}) {
    std::vector<std::string> arguments{
        "sh", "-c", "ulimit -d " + limit + "; exec \"$@\"", "sh", gputrain_path(), "bench", "train", job_};
    arguments.insert(arguments.end(), {"--steps", "3", "--warmup", "2", "--set", "output_dir=" + (folder_ / "run")});
    arguments.insert(arguments.end(), more.begin(), more.end());
    environment.emplace("OMP_NUM_THREADS", "1");
    return Program(arguments, environment).wait();
  }
  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_, "log: {interval: 1}\n");
};

TEST_F(BenchTrain, TimesEachCombinationAndWritesNothing) {
  const Result result = bench(
      {"--precision", "fp64,fp32", "--micro-batch-size", "2,4", "--accumulation", "2", "--rounds", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  const json report = json::parse(result.out);
  ASSERT_EQ(report["rows"].size(), 4U);
  for (const json& row : report["rows"]) {
    EXPECT_GT(row["rate"].get<double>(), 0);
    EXPECT_EQ(row["each"]["seconds"].size(), 6U);  // of both rounds
    EXPECT_GT(row["peak_memory_bytes"].get<int64_t>(), 10 << 20);
    EXPECT_TRUE(row["mfu"].is_null());
  }
  const json& row = report["rows"][1];
  EXPECT_EQ(row["precision"], "fp64");
  EXPECT_EQ(row["micro_batch"], 4);
  const std::vector<double> seconds = row["each"]["seconds"], rates = row["each"]["rates"];
  for (size_t i = 0; i < seconds.size(); ++i) EXPECT_DOUBLE_EQ(rates[i] * seconds[i], 8 * 16);
  EXPECT_THAT(report["comparisons"][0].get<std::string>(),
              ::testing::MatchesRegex("fp32 is [0-9.]+x fp64.* and .* memory"));

  const Result run = gputrain({"run", job_, "--output-dir", folder_ / "run", "--set", "train.micro_batch_size=4",
                               "--set", "train.global_batch_size=8", "--set", "train.max_steps=5"},
                              {{"OMP_NUM_THREADS", "1"}});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto losses = values(folder_ / "run/metrics.jsonl", "train/loss");
  EXPECT_EQ(row["first_loss"].get<double>(), losses.front());
  EXPECT_EQ(row["last_loss"].get<double>(), losses.back());
}

TEST_F(BenchTrain, PassesOnWarningsOfItsProcesses) {
  if (device::gpu_count() > 0) GTEST_SKIP() << "with a GPU alloc_conf has an effect, and nothing is warned of";
  const Result result = bench({"--set", "alloc_conf=expandable_segments:True"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: alloc_conf has no effect"));
}

TEST_F(BenchTrain, PrintsRowForWhatDoesNotFit) {
  if (testing::kIsSanitized) GTEST_SKIP() << testing::kNoDataLimit;
  const std::vector<std::string> wide{"--synthetic", "--set", "model.config.vocab_size=256", "--set",
                                      "model.config.block_size=64"};
  auto both = wide, none = wide;
  both.insert(both.end(), {"--micro-batch-size", "4000,1"});
  none.insert(none.end(), {"--micro-batch-size", "4000"});
  const Result some = bench(both, "250000");
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.out, ::testing::ContainsRegex("\nfp64 +4,000 none +1 out of memory\nfp64 +1 none +1 .* tokens/s"));
  EXPECT_EQ(bench(none, "250000").exit_code, 6);
}

TEST_F(BenchTrain, MeasuresWithNonFiniteLoss) {
  const Result result = bench({"--json", "--rounds", "2", "--set", "optimizer.lr=1e300"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_TRUE(report["rows"][0]["last_loss"].is_null()) << result.out;
  EXPECT_GT(report["rows"][0]["rate"].get<double>(), 0);
}

TEST_F(BenchTrain, RefusesWhatCannotBeMeasuredUpFront) {
  const Result precision = bench({"--precision", "fp64,fp33"});
  EXPECT_EQ(precision.exit_code, 2);
  EXPECT_THAT(precision.err, HasSubstr("fp33"));
  EXPECT_EQ(precision.out, "");
  const Result open = bench({"--set", "train.micro_batch_size=auto"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.err, HasSubstr("--micro-batch-size 8,16,32"));
  const Result more = bench({"--micro-batch-size", "100000"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.out, HasSubstr("a step of 100,000 samples is more than the training data"));
  const Result tokens = bench({"--synthetic"});
  EXPECT_EQ(tokens.exit_code, 2);
  EXPECT_THAT(tokens.err, HasSubstr("vocab_size: 50257"));
  const std::map<std::string, std::string> of_two{{"RANK", "0"},
                                                  {"WORLD_SIZE", "2"},
                                                  {"LOCAL_RANK", "0"},
                                                  {"LOCAL_WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", "1"}};
  const Result ranks = bench({}, "unlimited", of_two);
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_THAT(ranks.err, HasSubstr("measures one rank"));
}

app::BenchRow row_of(const std::string& precision, int64_t micro_batch, double rate, int64_t bytes) {
  return {.precision = precision,
          .checkpointing = "none",
          .unit = "tokens",
          .micro_batch = micro_batch,
          .accumulation = 1,
          .failure = rate > 0 ? "" : "out of memory",
          .seconds = {1},
          .rates = {rate},
          .peak_bytes = bytes};
}

TEST(BenchRows, CompareWithRowThatDiffersInOneSetting) {
  const std::vector<app::BenchRow> rows{row_of("fp32", 8, 100, 1000), row_of("fp32", 16, 0, 0),
                                        row_of("bf16", 8, 190, 650), row_of("bf16", 16, 209, 1001)};
  EXPECT_THAT(app::comparisons(rows), ElementsAre("bf16 is 1.90x fp32 and saves 35 % memory",
                                                  "micro-batch 16 is 1.10x micro-batch 8 and takes 54 % more memory"));
}

TEST(BenchRows, SayWhenSpreadExceedsDifference) {
  std::vector<app::BenchRow> rows{row_of("fp32", 8, 100, 1000), row_of("bf16", 8, 110, 1000)};
  const auto compared = [&](const std::vector<double>& first, const std::vector<double>& second) {
    rows[0].rates = first;
    rows[1].rates = second;
    return app::comparisons(rows).front();
  };
  const std::string apart = "bf16 is 1.10x fp32 and takes as much memory";
  const std::string overlap = "bf16 is 1.10x fp32 (less than their steps vary) and takes as much memory";
  EXPECT_EQ(compared({90, 95, 100, 104, 200}, {20, 106, 110, 114, 130}), apart);  // one outlier does not count
  EXPECT_EQ(compared({90, 95, 100, 108, 120}, {100, 106, 110, 114, 130}), overlap);
  EXPECT_EQ(compared({70, 100, 140}, {110}), overlap);
  EXPECT_EQ(compared({100}, {110}), apart);
}

TEST(BenchRows, ComputeUtilizationAndSpread) {
  app::BenchRow row = row_of("bf16", 8, 100, 1);
  row.rates = {90, 95, 100, 100, 100, 100, 100, 100, 105, 110, 200};
  EXPECT_EQ(row.rate(), 100);
  EXPECT_DOUBLE_EQ(row.spread(), (110.0 - 95.0) / 200);
  EXPECT_EQ(row.utilization(), 0);
  row.flops_per_second = 400e12;
  row.peak_flops_per_second = 800e12;
  EXPECT_EQ(row.utilization(), 0.5);
  EXPECT_EQ(app::to_json(app::row_from_json(app::to_json(row))), app::to_json(row));
}

}  // namespace
}  // namespace gputrain::testing_support
