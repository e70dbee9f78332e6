// `gputrain run --profile`, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

class Profile : public ::testing::Test {
 protected:
  Result run(const std::string& job, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"run", job, "--output-dir", folder_ / "run"};
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words, kOneThread);
  }

  /// Returns how often each name stands in a rank's trace.
  std::map<std::string, int64_t> names_in_trace(int rank = 0) const {
    const std::string file = folder_ / ("run/profile/rank" + std::to_string(rank) + ".trace.json");
    std::map<std::string, int64_t> names;
    const json trace = json::parse(read_file(file));
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") ++names[event.at("name")];
    }
    return names;
  }

  TemporaryFolder folder_;
};

/// Returns the shares of a step that a printed table has, in percent.
std::vector<double> shares_in(const std::string& out) {
  std::istringstream lines(out.substr(out.find("by its own time")));
  std::vector<double> shares;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream row(line);
    double time = 0, share = 0;
    std::string unit, percent;
    if (row >> time >> unit >> share >> percent && unit == "ms" && percent == "%") shares.push_back(share);
  }
  return shares;
}

TEST_F(Profile, RecordsStepsWithoutChangingThem) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: 3}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "plain"}, kOneThread).exit_code, 0);
  const Result result = run(job, {"--profile", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(losses_of(folder_ / "run"), losses_of(folder_ / "plain"));
  EXPECT_THAT(result.out, HasSubstr("run/profile/rank0.trace.json"));
  EXPECT_THAT(result.out, HasSubstr("4 steps of "));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "plain/profile"));

  const auto names = names_in_trace();
  for (const char* range : {"step", "wait for data", "forward", "backward", "update", "stem", "h.0", "head"})
    EXPECT_EQ(names.count(range), 1U) << range;
  EXPECT_EQ(names.at("step"), 4);
  EXPECT_GE(names.at("h.0"), 4);  // an evaluation has more of them
  for (const auto& [name, count] : names) EXPECT_THAT(name, Not(HasSubstr("CppNode")));
}

TEST_F(Profile, SharesOutTheTimeOfSteps) {
  const std::string job = folder_.write("mlp.yaml", R"(
seed: 1
device: cpu
model: {type: mlp, config: {hidden: [2048, 2048]}}
data: {train: {format: synthetic, samples: 512}, image: {size: 32}}
train: {max_steps: 3, global_batch_size: 256}
optimizer: {type: sgd, lr: 0.1}
)");
  const Result result = run(job, {"--profile", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto shares = shares_in(result.out);
  ASSERT_EQ(shares.size(), 10U) << result.out;
  EXPECT_TRUE(std::ranges::is_sorted(shares, std::greater())) << result.out;
  double sum = 0;
  for (const double share : shares) sum += share;
  EXPECT_GT(sum, 80) << result.out;
  EXPECT_LT(sum, 100.6) << result.out;
  EXPECT_GT(shares.front(), 30) << result.out;  // products of matrices
}

TEST_F(Profile, WritesATraceOfEachRank) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  const Result result = ranks(2, job, folder_ / "run", {"--profile", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (int rank = 0; rank < 2; ++rank) {
    const auto names = names_in_trace(rank);
    EXPECT_EQ(names.at("step"), 3);
    EXPECT_EQ(names.count("reduce gradients"), 1U);
  }
}

TEST_F(Profile, RecordsWhatShortRunHas) {
  const std::string job = write_gpt_job(folder_, "", "{max_steps: 3, global_batch_size: 8}");
  ASSERT_EQ(run(job, {"--profile", "10"}).exit_code, 0);
  EXPECT_EQ(names_in_trace().at("step"), 3);
}

TEST_F(Profile, TrainsOnWhereItCannotBeWritten) {
  const std::string job = write_gpt_job(folder_, "", "{max_steps: 3, global_batch_size: 8}");
  folder_.write("run/profile", "no folder");
  const Result result = run(job, {"--profile", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the profile cannot be written"));
}

}  // namespace
}  // namespace gputrain::testing_support
