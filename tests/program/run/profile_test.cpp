// `gputrain run --profile` and `gputrain profile`, as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gputrain/inspect/profile_advice.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

json read_json(const std::string& path) { return json::parse(read_file(path)); }

class Profile : public ::testing::Test {
 protected:
  Result run(const std::string& job, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"run", job, "--output-dir", folder_ / "run"};
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words, kOneThread);
  }
  json summary() const { return read_json(folder_ / "run/profile/summary.json"); }

  /// Whether the self times of operators and ranges sum to the time that the loop has measured for the steps.
  static void expect_all_time_shared_out(const json& summary) {
    double sum = 0;
    for (const char* costs : {"operators", "ranges"}) {
      for (const json& cost : summary.at(costs)) sum += cost.at("self_seconds").get<double>();
    }
    const double measured = summary.at("train_seconds");
    EXPECT_NEAR(sum, measured, 0.05 * measured);
  }

  /// Counted from the operators, against the model's own formula.
  static void expect_flops_of_model(const json& summary) {
    const double counted = summary.at("ranks").at(0).at("flops"), expected = summary.at("model_flops");
    EXPECT_GT(expected, 0);
    EXPECT_NEAR(counted, expected, 0.05 * expected);
  }

  TemporaryFolder folder_;
};

TEST_F(Profile, RecordsStepsWithoutChangingThem) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: 3}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "plain"}, kOneThread).exit_code, 0);
  const Result result = run(job, {"--profile", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(losses_of(folder_ / "run"), losses_of(folder_ / "plain"));
  EXPECT_THAT(result.out, HasSubstr("run/profile/summary.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "plain/profile"));

  const json recorded = summary();
  EXPECT_EQ(recorded["steps"], 4);
  EXPECT_EQ(recorded["first_step"], 6);
  EXPECT_EQ(recorded["last_step"], 9);
  expect_all_time_shared_out(recorded);
  expect_flops_of_model(recorded);
  std::vector<std::string> units;
  for (const json& unit : recorded["units"]) {
    units.push_back(unit["name"]);
    EXPECT_GT(unit["forward_seconds"].get<double>(), 0) << unit;
    EXPECT_GT(unit["backward_seconds"].get<double>(), 0) << unit;
  }
  EXPECT_THAT(units, ElementsAre("stem", "h.0", "head"));

  const Result page = gputrain({"profile", folder_ / "run"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, HasSubstr("steps   6 to 9"));
  const json report = json::parse(gputrain({"profile", folder_ / "run", "--json"}).out);
  EXPECT_EQ(report["top"].size(), 10U);
}

TEST_F(Profile, CountsWorkOfResNet) {
  const std::string job = folder_.write("resnet.yaml", R"(
seed: 1
device: cpu
model: {type: resnet18, config: {stem: cifar, width: 16}}
data: {train: {format: synthetic, samples: 64}, image: {size: 32}}
train: {max_steps: 3, global_batch_size: 8}
optimizer: {type: sgd, lr: 0.1}
)");
  const Result result = run(job, {"--profile", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_flops_of_model(summary());
  expect_all_time_shared_out(summary());
  EXPECT_EQ(summary()["units"].size(), 10U);
}

TEST_F(Profile, CountsWorkOfGptInOtherPrecisions) {
  const std::string job = write_gpt_job(folder_, "", "{max_steps: 2, global_batch_size: 8}");
  for (const char* precision : {"fp32", "bf16"}) {
    const Result result = run(
        job, {"--profile", "1", "--set", std::string("precision=") + precision, "--set", "checkpoint.resume=never"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    SCOPED_TRACE(precision);
    expect_flops_of_model(summary());
  }
}

TEST_F(Profile, PutsRanksOnOneClock) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  const Result result = ranks(2, job, folder_ / "run", {"--profile", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::vector<std::pair<double, double>>> steps(2);
  for (int rank = 0; rank < 2; ++rank) {
    const json trace = read_json(folder_ / ("run/profile/rank" + std::to_string(rank) + ".trace.json"));
    std::set<std::string> names, categories;
    for (const json& event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], rank);
      if (event["name"] == "process_name") names.insert(event["args"]["name"]);
      if (event["name"] == "thread_name") names.insert(event["args"]["name"]);
      if (event["ph"] != "X") continue;
      categories.insert(event["cat"]);
      const double begin = event["ts"], end = begin + event["dur"].get<double>();
      EXPECT_GE(begin, 0);
      if (event["name"] == "step") steps[static_cast<size_t>(rank)].emplace_back(begin, end);
    }
    EXPECT_THAT(names, ElementsAre("main thread", "rank " + std::to_string(rank)));
    EXPECT_THAT(categories, ElementsAre("backward", "operator", "range", "unit"));
  }
  ASSERT_EQ(steps[0].size(), 3U);
  ASSERT_EQ(steps[1].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {  // the ranks wait for each other in every step
    EXPECT_LT(steps[0][i].first, steps[1][i].second);
    EXPECT_LT(steps[1][i].first, steps[0][i].second);
  }
  EXPECT_EQ(summary()["ranks"].size(), 2U);
}

TEST_F(Profile, RecordsWhatShortRunHas) {
  const std::string job = write_gpt_job(folder_, "", "{max_steps: 3, global_batch_size: 8}");
  ASSERT_EQ(run(job, {"--profile", "10"}).exit_code, 0);
  EXPECT_EQ(summary()["steps"], 3);
  const Result none = gputrain({"profile", folder_ / "elsewhere"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--profile 10"));
}

json profile_of(const json& rank_0, const json& rank_1) {
  return {{"steps", 2},
          {"seconds", 2.0},
          {"operators", {{{"name", "aten::mm"}, {"calls", 100}, {"self_seconds", 1.9}, {"share", 0.95}}}},
          {"ranges", json::array()},
          {"kernels", json::array()},
          {"run",
           {{"num_workers", 2}, {"micro_batch", 8}, {"accumulation", 1}, {"global_batch", 16}, {"precision", "fp32"}}},
          {"ranks", {rank_0, rank_1}}};
}

json rank_costs(int rank, double data, double computing, double reduce) {
  return {{"rank", rank},
          {"host", "h" + std::to_string(rank)},
          {"seconds", 2.0},
          {"data_seconds", data},
          {"agree_seconds", 0},
          {"forward_seconds", computing / 2},
          {"backward_seconds", computing / 2},
          {"reduce_seconds", reduce},
          {"update_seconds", 0},
          {"device_busy_seconds", 0}};
}

TEST(ProfileAdvice, SaysOnlyWhatNumbersShow) {
  EXPECT_THAT(app::profile_advice(profile_of(rank_costs(0, 0, 1.9, 0), rank_costs(1, 0, 1.9, 0))), ElementsAre());
  EXPECT_THAT(
      app::profile_advice(profile_of(rank_costs(0, 0, 1, 0), rank_costs(1, 1.0, 1, 0))),
      ElementsAre(HasSubstr("50 % of a step goes by waiting for data (rank 1): raise data.num_workers (now 2)")));
  EXPECT_THAT(app::profile_advice(profile_of(rank_costs(0, 0, 1, 1), rank_costs(1, 0, 1, 1))),
              ElementsAre(HasSubstr("50 % of a step goes into exchanging gradients")));
  EXPECT_THAT(app::profile_advice(profile_of(rank_costs(0, 0, 0.5, 1.5), rank_costs(1, 0, 2, 0))),
              ElementsAre(HasSubstr("rank 1 on h1 computes 4.00 times as long as rank 0")));
}

}  // namespace
}  // namespace gputrain::testing_support
