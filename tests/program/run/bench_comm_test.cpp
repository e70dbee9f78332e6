// `gputrain bench comm`, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gputrain/inspect/collective_bench.hpp"
#include "support/ports.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

Result launched(int ranks, std::vector<std::string> more) {
  std::vector<std::string> words{"launch", "--nproc-per-node", std::to_string(ranks), "bench", "comm"};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--iterations", "3", "--warmup", "1"});
  return gputrain(words, kOneThread);
}

// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
TEST(BenchComm, DefinesBandwidthsAsNcclTestsDoes) {
  const auto row = [](const char* name) {
    return app::CollectiveRow{.collective = name, .ranks = 8, .bytes = 1'000'000, .wrong = 0, .seconds = 0.001};
  };
  for (const std::string& name : app::collective_names())
    EXPECT_DOUBLE_EQ(row(name.c_str()).algorithm_bandwidth(), 1e9);
  EXPECT_DOUBLE_EQ(row("all_reduce").bus_bandwidth(), 1.75e9);
  EXPECT_DOUBLE_EQ(row("all_gather").bus_bandwidth(), 0.875e9);
  EXPECT_DOUBLE_EQ(row("broadcast").bus_bandwidth(), 1e9);
  EXPECT_DOUBLE_EQ(row("reduce").bus_bandwidth(), 1e9);
}

TEST(BenchComm, EndsSizesAtTheLargest) {
  EXPECT_THAT(app::sizes_between(8, 64, 2), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(app::sizes_between(8, 60, 4), ElementsAre(8, 32));
  EXPECT_THAT(app::sizes_between(int64_t{1} << 62, std::numeric_limits<int64_t>::max(), 4),
              ElementsAre(int64_t{1} << 62));
}

TEST(BenchComm, TimesAndChecksEveryCollective) {
  const Result result = launched(3, {"--json", "--min-bytes", "4", "--max-bytes", "1K", "--factor", "16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["ranks"], 3);
  EXPECT_EQ(report["hosts"].size(), 3U);
  EXPECT_THAT(report["links"].get<std::string>(), StartsWith("gloo over lo"));
  ASSERT_EQ(report["rows"].size(), 12U);
  std::set<std::string> names;
  for (const json& row : report["rows"]) {
    names.insert(row["collective"]);
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["elements"].get<int64_t>() * 4, row["bytes"]);
    EXPECT_TRUE(row["collective"] != "all_gather" || row["elements"].get<int64_t>() % 3 == 0);
    const double seconds = row["seconds"], algbw = row["algbw"];
    EXPECT_GT(seconds, 0);
    EXPECT_NEAR(algbw * seconds, row["bytes"].get<double>(), 1e-6);
  }
  EXPECT_EQ(names.size(), 4U);
}

TEST(BenchComm, PrintsTableOnRankZeroOnly) {
  const Result result = launched(2, {"--max-bytes", "16", "--collectives", "broadcast"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("^ranks   2 on .*:2\nlinks   gloo over lo"));
  EXPECT_THAT(result.out, ContainsRegex("broadcast\n +bytes .*wrong\n +8 +2 .* GB/s +0\n +16 +4 .* GB/s +0\n$"));
  EXPECT_THAT(result.out, Not(HasSubstr("[rank 1]")));
}

TEST(BenchComm, NeedsPeers) {
  const Result alone = gputrain({"bench", "comm"}, kOneThread);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("gputrain launch --nproc-per-node 2 bench comm"));
  const Result other = gputrain({"launch", "--nproc-per-node", "2", "bench", "train", "job.yaml"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("launch starts ranks of `run`, `eval`, `replay` or `bench comm`, not of 'bench train'"));
}

TEST(BenchComm, TakesDeviceAndRanksFromJob) {
  TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml", "device: cuda\nlaunch: {nproc_per_node: 2}\nmodel: {type: of another program}\n");
  const Result wrong = gputrain({"launch", "bench", "comm", job, "--set", "device=gpu"}, kOneThread);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("device"));
  const Result right =
      gputrain({"launch", "bench", "comm", job, "--set", "device=cpu", "--max-bytes", "8"}, kOneThread);
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_THAT(right.out, HasSubstr("ranks   2"));
}

}  // namespace
}  // namespace gputrain::testing_support
