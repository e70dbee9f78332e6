// Jobs of a small model of texts, whose ranks on any mesh train as one rank does.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

class LikeOneRank : public ::testing::Test {
 protected:
  /// 20 steps in fp64, with evaluations and a save after the 10th.
  std::string write_job(const std::string& model, const std::string& more = "") {
    return folder_.write("job.yaml",
                         "schema: 1\ndevice: cpu\nprecision: fp64\nmodel: {type: gpt, config: " + model +
                             "}\ndata: {train: {format: synthetic, samples: 59, vocab_size: 67}, val: {split: 15%}}\n"
                             "train: {max_steps: 20, global_batch_size: 8, max_grad_norm: 2, label_smoothing: 0.1}\n"
                             "optimizer: {type: adamw, lr: 3e-3}\neval: {interval: 10}\nlog: {interval: 1}\n"
                             "checkpoint: {interval: 10}\n" +
                             more);
  }
  Result run(int world, const std::string& job, const std::string& name,
             const std::vector<std::string>& settings = {}) {
    std::vector<std::string> more;
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    return ranks(world, job, folder_ / name, more);
  }
  /// Compares with the run in the folder "one": losses of all steps, the last norm and the last evaluation.
  void expect_like_one(int world, const std::string& job, const std::string& name,
                       const std::vector<std::string>& settings) {
    const Result result = run(world, job, name, settings);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string one = folder_ / "one", other = folder_ / name;
    expect_equal_losses(one + "/metrics.jsonl", other + "/metrics.jsonl", 1e-9);
    const auto metrics_of = [](const std::string& folder) {
      return nlohmann::json::parse(read_file(folder + "/summary.json")).at("metrics");
    };
    const auto expected = metrics_of(one), got = metrics_of(other);
    for (const char* metric : {"train/grad_norm", "val/loss"}) {
      const double value = expected.at(metric);
      EXPECT_NEAR(got.at(metric), value, 1e-9 * value) << name << metric;
    }
  }
  /// What `gputrain eval` says of weights, such as those of a run or of a checkpoint.
  std::string loss_of(const std::string& job, const std::string& weights) {
    const Result result = gputrain({"eval", job, "--weights", folder_ / weights});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(result.out.find("val/loss"));
  }
  std::string refusal(int world, const std::string& job, const std::vector<std::string>& settings) {
    const Result result = run(world, job, "out", settings);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  }

  TemporaryFolder folder_;
};

}  // namespace gputrain::testing_support
