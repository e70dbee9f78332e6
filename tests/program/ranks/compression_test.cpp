// parallel.compress and parallel.bucket_cap_mb: what is sent, what is reported, what a checkpoint keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> compress(const std::string& how) { return {"--set", "parallel.compress=" + how}; }

nlohmann::json communication_of(const std::string& run) {
  return nlohmann::json::parse(read_file(run + "/summary.json")).at("communication");
}

class GradientCompression : public ::testing::Test {
 protected:
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  /// Two ranks with this compression, in a folder of its own; trained once for all tests.
  static const std::pair<Result, std::string>& trained(const std::string& how) {
    if (shared_ == nullptr) shared_ = new Shared;
    const auto [entry, is_new] = shared_->runs.try_emplace(how);
    if (is_new) {
      entry->second.second = shared_->folder / how;
      entry->second.first = ranks(2, shared_->job, entry->second.second, compress(how));
      EXPECT_EQ(entry->second.first.exit_code, 0) << how << entry->second.first.err;
    }
    return entry->second;
  }
  std::string run(const std::string& name) const { return folder_ / name; }

  TemporaryFolder folder_;
  const std::string job_ = write_gpt_job(folder_, kJob);

 private:
  static constexpr const char* kJob = "log: {interval: 1}\ncheckpoint: {interval: 10}\n";
  struct Shared {
    TemporaryFolder folder;
    std::string job = write_gpt_job(folder, kJob);
    std::map<std::string, std::pair<Result, std::string>> runs;
  };
  static inline Shared* shared_ = nullptr;
};

// 20 steps reduce the loss from 3.4 to about 2.2. Rounding gradients to 16 bits must not change this visibly.
TEST_F(GradientCompression, TrainsNearlyAsUncompressed) {
  const auto whole = values(trained("none").second + "/metrics.jsonl", "train/loss");
  ASSERT_FALSE(whole.empty());
  for (const auto& [how, tolerance] : {std::pair{"fp16", 1e-3}, {"bf16", 5e-3}}) {
    const auto losses = values(trained(how).second + "/metrics.jsonl", "train/loss");
    ASSERT_FALSE(losses.empty()) << how;
    EXPECT_LT(losses.back(), losses.front() - 0.5) << how;
    EXPECT_NEAR(losses.back(), whole.back(), tolerance * whole.back()) << how;
    EXPECT_NE(losses.back(), whole.back()) << how;
  }
}

// A learning rate that is far too high makes gradients overflow fp16; bf16 has the range of fp32.
TEST_F(GradientCompression, SuggestsBf16WhenFp16Overflows) {
  const auto run_with = [&](const std::string& how) {
    auto settings = compress(how);
    settings.insert(settings.end(), {"--set", "optimizer={type: sgd, lr: 1e5}", "--set", "train.max_steps=3"});
    return ranks(2, job_, run(how), settings);
  };
  const Result narrow = run_with("fp16");
  EXPECT_EQ(narrow.exit_code, 4);
  EXPECT_THAT(narrow.err, HasSubstr("parallel.compress: bf16, as fp16 holds nothing above 65,504"));
  const Result wide = run_with("bf16");
  EXPECT_EQ(wide.exit_code, 0) << wide.err;
}

TEST_F(GradientCompression, ReportsBytesBeforeAndAfter) {
  const std::vector<std::pair<std::string, double>> ways{{"none", 1}, {"fp16", 4}, {"bf16", 4}};
  for (const auto& [how, at_least] : ways) {
    const auto& [result, output] = trained(how);
    const auto sent = communication_of(output);
    const double ratio = sent["uncompressed_bytes_per_step"].get<double>() / sent["bytes_per_step"].get<double>();
    EXPECT_GE(ratio, at_least) << how;
    const size_t begin = result.out.find("reduce  ") + 8;
    const std::string told = result.out.substr(begin, result.out.find(" a step", begin) - begin);
    EXPECT_THAT(result.out, HasSubstr("sent " + told + " a step")) << how;
    EXPECT_EQ(result.out.find(" a step instead of ") == std::string::npos, how == "none") << result.out;
  }
}

/// Weights that ranks share out travel in the type that the model computes in, without any compression of gradients.
TEST_F(GradientCompression, IsNotWhatMakesGatheredWeightsSmaller) {
  const Result page = gputrain({"run", job_, "--dry-run", "--world-size", "4", "--output-dir", run("dry"), "--set",
                                "parallel.shard=parameters", "--set", "precision=bf16"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, ::testing::AllOf(HasSubstr(", weights as bf16"), Not(HasSubstr("gradients as"))));
}

/// A model of 7 MiB, so that the bucket size matters.
std::vector<std::string> larger(const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"--set", "model.config.n_embd=128", "--set", "model.config.n_layer=4",
                               "--set", "train.max_steps=20"};
  for (const std::string& each : more) all.insert(all.end(), {"--set", each});
  return all;
}

TEST_F(GradientCompression, KeepsBucketSizeOfTheCheckpoint) {
  const Result measured = ranks(2, job_, run("measured"), larger());
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("(auto: an all-reduce here takes "));
  copy_without_the_end(run("measured"), run("again"));
  const auto state = nlohmann::json::parse(read_file(run("measured/ckpt/step-00000010/state.json")));
  const std::string size = " buckets of " + std::to_string(state.at("bucket_bytes").get<int64_t>() >> 20);
  EXPECT_THAT(measured.out, AnyOf(HasSubstr(size + "."), HasSubstr(size + " MiB")));
  EXPECT_THAT(ranks(2, job_, run("again"), larger()).out, HasSubstr("(auto: as in the checkpoint)"));
  const Result fixed = ranks(2, job_, run("fixed"), larger({"deterministic=true"}));
  EXPECT_THAT(fixed.out, HasSubstr("(auto: not measured, because deterministic is true)"));
  const Result few = ranks(2, job_, run("few"), larger({"model.config.n_layer=2"}));
  EXPECT_THAT(few.out, HasSubstr(" 2 buckets of 25.0 MiB (auto: too few gradients to be worth measuring)"));
  const Result given = ranks(2, job_, run("given"), larger({"parallel.bucket_cap_mb=2"}));
  EXPECT_THAT(given.out, HasSubstr(" buckets of 2.00 MiB\n"));
}

}  // namespace
}  // namespace gputrain::testing_support
