// model.adapter, as a user has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class Adapting : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result base = gputrain({"run", job_, "--output-dir", folder_ / "base", "--set", "train.max_steps=2"});
    ASSERT_EQ(base.exit_code, 0) << base.err;
  }

  Result run(const std::string& name, const std::vector<std::string>& settings = {}) const {
    return adapted("run", name, settings);
  }
  /// The validation loss of the job's weights.
  double evaluated(const std::string& name, const std::vector<std::string>& settings = {}) const {
    const Result result = adapted("eval", name, settings, {"--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("val/loss").get<double>();
  }

  Result adapted(const std::string& verb, const std::string& name, const std::vector<std::string>& settings,
                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{verb, job_, "--output-dir", folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const std::string& setting : kAdapted) arguments.insert(arguments.end(), {"--set", setting});
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return gputrain(arguments);
  }

  const TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: null}\ncheckpoint: {interval: 5, keep_last: 2}\n");
  const std::vector<std::string> kAdapted{"model.pretrained=" + folder_ / "base", "model.adapter.type=lora",
                                          "model.adapter.rank=4", "optimizer.lr=1e-2"};
};

/// Settings of an adapter beside the usual ones.
class AdaptingKinds : public Adapting, public ::testing::WithParamInterface<std::vector<std::string>> {
 protected:
  std::vector<std::string> settings(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = GetParam();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(
    , AdaptingKinds,
    ::testing::Values(std::vector<std::string>{"model.adapter.dropout=0.1"},
                      std::vector<std::string>{"model.adapter.dropout=0.1", "model.adapter.dora=true",
                                               "model.config.neftune_alpha=0.05"},
                      std::vector<std::string>{"model.adapter.init=pissa", "train.ema.decay=0.5",
                                               "model.adapter.groups=[{match: c_fc, rank: 2, alpha: 1}]"}),
    [](const auto& one) { return "Number" + std::to_string(one.index); });

TEST_P(AdaptingKinds, TrainsResumesAndEvaluatesAnAdapter) {
  const Result whole = run("whole", settings({"model.adapter.merge=true"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("gpt trainable "), HasSubstr("\nadapter lora rank 4, alpha 4, ")));
  const auto losses = losses_of(folder_ / "whole");
  EXPECT_LT(losses.back(), losses.front());
  const SafetensorsFile adapter(folder_ / "whole/adapter/adapter_model.safetensors");
  EXPECT_THAT(adapter.names(), Each(AllOf(HasSubstr("base_model.model.transformer.h.0."), HasSubstr(".lora_"))));
  const auto config = nlohmann::json::parse(read_file(folder_ / "whole/adapter/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], folder_ / "base");
  EXPECT_EQ(config["fan_in_fan_out"], true);
  const auto opened = checkpoint::Checkpoint::open(folder_ / "whole/ckpt/step-00000020");
  const SafetensorsFile saved(folder_ / "whole/ckpt/step-00000020/model.safetensors");
  EXPECT_THAT(saved.names(), Each(HasSubstr(".lora_")));
  EXPECT_TRUE(opened.manifest().frozen.value().tensors.contains("transformer.wte.weight"));

  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  fs::remove_all(folder_ / "cut/adapter");
  fs::remove(folder_ / "cut/model.safetensors");
  const Result resumed = run("cut", settings());
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resume  step 15"));
  EXPECT_EQ(losses_of(folder_ / "cut"), losses);
  EXPECT_EQ(read_file(folder_ / "cut/adapter/adapter_model.safetensors"),
            read_file(folder_ / "whole/adapter/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "cut/model.safetensors"));

  const double loss = evaluated("whole", settings());
  EXPECT_LT(loss, evaluated("untrained", settings()) - 0.01);
  const Result merged = gputrain({"eval", job_, "--weights", folder_ / "whole/model.safetensors", "--json"});
  EXPECT_NEAR(nlohmann::json::parse(merged.out).at("val/loss").get<double>(), loss, 1e-12);
  for (const std::string& of_run : {folder_ / "whole/adapter", folder_ / "whole"})
    EXPECT_NEAR(evaluated("other", {"model.adapter.rank=null", "model.adapter.pretrained=" + of_run}), loss, 1e-12);
}

// Layers read 16-bit copies then, and the values themselves have no memory while the model computes.
TEST_P(AdaptingKinds, TrainsOnRanksThatShareValuesIn16Bits) {
  std::vector<std::string> all;
  for (const std::string& setting : kAdapted) all.insert(all.end(), {"--set", setting});
  for (const std::string& setting : settings({"precision=bf16"})) all.insert(all.end(), {"--set", setting});
  ASSERT_EQ(ranks(1, job_, folder_ / "one", all).exit_code, 0);
  all.insert(all.end(), {"--set", "parallel.shard=parameters"});
  const Result two = ranks(2, job_, folder_ / "two", all);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const auto one = losses_of(folder_ / "one"), shared = losses_of(folder_ / "two");
  ASSERT_EQ(one.size(), shared.size());
  // Each rank draws dropout and noise of its own.
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(shared[i], one[i], 0.05 * one[i]) << i;
}

TEST_F(Adapting, TrainsOnRanksThatShareGradientsAsOnOne) {
  std::vector<std::string> settings;
  for (const std::string& setting : kAdapted) settings.insert(settings.end(), {"--set", setting});
  ASSERT_EQ(ranks(1, job_, folder_ / "one", settings).exit_code, 0);
  settings.insert(settings.end(), {"--set", "parallel.shard=gradients", "--set", "parallel.check_replicas=5"});
  const Result two = ranks(2, job_, folder_ / "two", settings);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
  EXPECT_TRUE(fs::exists(folder_ / "two/adapter/adapter_model.safetensors"));
}

TEST_F(Adapting, StaysWithTheWeightsItBeganWith) {
  ASSERT_EQ(run("run", {"train.max_steps=5"}).exit_code, 0);
  const Result other =
      gputrain({"run", job_, "--output-dir", folder_ / "base", "--set", "train.max_steps=3", "--accept"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  const Result refused = run("run", {"train.max_steps=5"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("other values than those that the adapter is trained on"),
                                 HasSubstr("put the weights back")));
}

TEST_F(Adapting, ExplainsWhatIsWrong) {
  const Result alone = gputrain({"run", job_, "--output-dir", folder_ / "alone", "--set", "model.adapter.type=lora"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("model.pretrained is missing"));
  const Result unknown = run("unknown", {"model.adapter.target_modules=q_proj"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("'q_proj'"), HasSubstr("c_proj")));
  const Result no_folder = run("none", {"model.adapter.pretrained=" + folder_ / "base"});
  EXPECT_EQ(no_folder.exit_code, 3);
  EXPECT_THAT(no_folder.err, HasSubstr("there is no adapter_config.json"));
  const Result foreign = adapted("run", "foreign", {"model.adapter.r=4"});
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("rank"));
}

}  // namespace
}  // namespace gputrain::testing_support
