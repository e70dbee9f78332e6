// model.freeze and optimizer.groups, as a user has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/job/job_changes.hpp"
#include "support/checkpoints.hpp"
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
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kFreeze = "model.freeze=[\"*.wte.*\", \"*.h.*\", \"!*.mlp.*\"]";
const std::vector<std::string> kFrozen{"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight",
                                       "transformer.h.0.ln_1.weight"};
const std::vector<std::string> kTrained{"transformer.wpe.weight", "transformer.h.0.mlp.c_fc.weight",
                                        "transformer.ln_f.weight"};

class Freezing : public ::testing::Test {
 protected:
  Result run(const std::string& name, const std::vector<std::string>& settings,
             const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"run", job_, "--output-dir", folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return gputrain(arguments);
  }

  std::vector<fs::path> frozen_files(const std::string& ckpt) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_ / ckpt)) {
      if (entry.path().filename().string().starts_with("frozen-")) found.push_back(entry.path());
    }
    return found;
  }
  std::string step(const std::string& name, const char* number) const {
    return folder_ / (name + "/ckpt/step-000000" + number);
  }

  const TemporaryFolder folder_;
  const std::string job_ =
      write_gpt_job(folder_, "log: {interval: 1}\neval: {interval: null}\ncheckpoint: {interval: 5, keep_last: 2}\n");
};

/// In each precision, as that decides what a frozen weight is kept in.
class FreezingIn : public Freezing, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Precision, FreezingIn, ::testing::Values("fp64", "fp32", "bf16"),
                         [](const auto& entry) { return entry.param; });

TEST_P(FreezingIn, TrainsOnlyTheOtherWeights) {
  const std::string precision = "precision=" + GetParam();
  const Result begun = run("begun", {precision, "train.max_steps=1", "optimizer.lr=1e-30", "optimizer.weight_decay=0"});
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  const Result result = run("run", {precision, kFreeze});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("gpt trainable "));
  EXPECT_THAT(result.err, Not(HasSubstr("does not reach")));
  const SafetensorsFile before(folder_ / "begun/model.safetensors"), after(folder_ / "run/model.safetensors");
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : kFrozen) {
    const at::Tensor value = after.tensor(name);
    EXPECT_TRUE(value.equal(before.tensor(name).to(value.scalar_type()))) << name;
  }
  for (const std::string& name : kTrained) EXPECT_FALSE(after.tensor(name).equal(before.tensor(name))) << name;
  const bool is_narrow = GetParam() == "bf16";
  EXPECT_EQ(after.tensor(kFrozen[0]).scalar_type() == at::kBFloat16, is_narrow);
  EXPECT_NE(after.tensor(kFrozen[2]).scalar_type(), at::kBFloat16);  // norms are read in the master type
  const auto losses = losses_of(folder_ / "run");
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(Freezing, KeepsFrozenValuesOnceForAllCheckpoints) {
  const Result result = run("run", {kFreeze, "checkpoint.mirror=" + folder_ / "mirror"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(frozen_files("run/ckpt").size(), 1u);
  ASSERT_EQ(frozen_files("mirror").size(), 1u);
  EXPECT_EQ(read_file(frozen_files("run/ckpt")[0]), read_file(frozen_files("mirror")[0]));
  for (const char* number : {"15", "20"}) {
    const SafetensorsFile model(step("run", number) + "/model.safetensors");
    EXPECT_THAT(model.names(), Each(Not(HasSubstr("attn"))));
    const auto opened = checkpoint::Checkpoint::open(step("run", number));
    EXPECT_TRUE(opened.part("model").contains(kFrozen[0]));
    const auto& note = opened.manifest().frozen.value();
    EXPECT_EQ(note.tensors.at(kFrozen[0]).dtype, "F64");
    EXPECT_THAT(note.source, HasSubstr("seed"));
    for (const std::string& name : opened.part("optimizer").names()) EXPECT_THAT(name, Not(HasSubstr("attn")));
  }
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "run"}).exit_code, 0);
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "mirror"}).exit_code, 0);
  const Result evaluated = gputrain({"eval", job_, "--output-dir", folder_ / "run", "--weights", step("run", "20")});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
}

TEST_F(Freezing, ResumesExactly) {
  ASSERT_EQ(run("whole", {kFreeze}).exit_code, 0);
  copy_without_the_end(folder_ / "whole", folder_ / "cut");
  const Result result = run("cut", {kFreeze});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 15"));
  EXPECT_EQ(losses_of(folder_ / "whole"), losses_of(folder_ / "cut"));
  EXPECT_THAT(differing_tensors(folder_ / "whole", folder_ / "cut"), IsEmpty());
}

TEST_F(Freezing, TrainsOnRanksThatShareGradientsAsOnOne) {
  const std::vector<std::string> settings{
      "--set", kFreeze,
      "--set", "optimizer.layer_decay=0.5",
      "--set", "optimizer.groups=[{match: \"*.wpe.*\", lr: 0.1x, weight_decay: 0.3}]"};
  ASSERT_EQ(ranks(1, job_, folder_ / "one", settings).exit_code, 0);
  auto sharded = settings;
  sharded.insert(sharded.end(), {"--set", "parallel.shard=gradients", "--set", "parallel.check_replicas=5"});
  const Result two = ranks(2, job_, folder_ / "two", sharded);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  expect_equal_losses(folder_ / "one/metrics.jsonl", folder_ / "two/metrics.jsonl", 1e-9);
  ASSERT_EQ(frozen_files("two/ckpt").size(), 1u);
}

TEST_F(Freezing, ChangesWithAcceptOnly) {
  ASSERT_EQ(run("run", {kFreeze, "train.max_steps=10"}).exit_code, 0);
  const std::string other = "model.freeze=[\"*.wpe.*\", \"*.mlp.*\"]";  // all others are newly trained
  const Result refused = run("run", {other});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("model.freeze"), HasSubstr("--accept")));
  const SafetensorsFile before(folder_ / "run/model.safetensors");
  const at::Tensor frozen = before.tensor("transformer.wpe.weight").clone();
  const Result accepted = run("run", {other, "checkpoint.keep_last=1"}, {"--accept"});
  ASSERT_EQ(accepted.exit_code, 0) << accepted.err;
  const SafetensorsFile after(folder_ / "run/model.safetensors");
  EXPECT_TRUE(after.tensor("transformer.wpe.weight").equal(frozen));
  EXPECT_FALSE(after.tensor(kFrozen[1]).equal(before.tensor(kFrozen[1])));
  EXPECT_EQ(frozen_files("run/ckpt").size(), 1u);  // no kept checkpoint names the first
  const auto opened = checkpoint::Checkpoint::open(step("run", "20"));
  EXPECT_THAT(opened.manifest().frozen->source, HasSubstr("training until step 10"));
  EXPECT_TRUE(opened.part("optimizer").contains("exp_avg." + kFrozen[1]));
  EXPECT_FALSE(opened.part("optimizer").contains("exp_avg.transformer.wpe.weight"));
  const Result thawed = run("run", {"model.freeze=[]", "train.max_steps=25"}, {"--accept"});
  ASSERT_EQ(thawed.exit_code, 0) << thawed.err;
}

// As with requires_grad = False in torchvision: the layers stay in training mode.
TEST_F(Freezing, GoesOnWithRunningStatisticsOfFrozenBatchNorm) {
  const std::string job = folder_.write(
      "images.yaml",
      "device: cpu\nmodel: {type: resnet18, freeze: [\"*\", \"!fc.*\"]}\n"
      "data: {train: {format: synthetic, samples: 16}, image: {size: 32}}\n"
      "train: {max_steps: 2, global_batch_size: 4}\noptimizer: {type: sgd, lr: 0.1}\ncheckpoint: {interval: null}\n");
  for (const std::string precision : {"fp32", "bf16"}) {
    const std::string output = folder_ / ("images-" + precision);
    const Result result = gputrain({"run", job, "--output-dir", output, "--set", "precision=" + precision});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("does not reach")));
    const SafetensorsFile weights(output + "/model.safetensors");
    EXPECT_GT(weights.tensor("layer4.1.bn2.running_mean").abs().sum().item<double>(), 0);
    EXPECT_EQ(weights.tensor("layer4.1.bn2.num_batches_tracked").item<int64_t>(), 2);
    EXPECT_EQ(weights.tensor("bn1.weight").min().item<double>(), 1);
    EXPECT_EQ(weights.tensor("bn1.weight").max().item<double>(), 1);
    EXPECT_EQ(weights.tensor("conv1.weight").scalar_type(), precision == "bf16" ? at::kBFloat16 : at::kFloat);
    EXPECT_EQ(weights.tensor("fc.weight").scalar_type(), at::kFloat);
  }
}

TEST_F(Freezing, ResumesACheckpointWhoseWriterDidNotKnowTheKey) {
  const app::Job plain = app::load_job({.file = job_, .set = {}});
  const app::Job freezing = app::load_job({.file = job_, .set = {"model.freeze=[h.*]"}});
  nlohmann::json saved = app::settings_to_json(plain.loaded.settings());
  saved.erase("model.freeze");
  EXPECT_NO_THROW(app::check_job_changes(saved, plain, false, "ckpt"));
  EXPECT_THROW(app::check_job_changes(saved, freezing, false, "ckpt"), Error);
  EXPECT_NO_THROW(app::check_job_changes(saved, freezing, true, "ckpt"));
}

TEST_F(Freezing, ReportsMissingOrDamagedFrozenWeights) {
  ASSERT_EQ(run("run", {kFreeze}).exit_code, 0);
  const fs::path file = frozen_files("run/ckpt").at(0), away = folder_ / "away";
  fs::rename(file, away);
  const Result gone = run("run", {kFreeze, "train.max_steps=25"}, {"--accept"});
  EXPECT_EQ(gone.exit_code, 5);
  EXPECT_THAT(gone.err,
              AllOf(HasSubstr(file.filename().string()), HasSubstr("frozen weights"), HasSubstr("from seed")));
  fs::copy(away, file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x55');
  const Result damaged = run("run", {kFreeze, "train.max_steps=25"}, {"--accept"});
  EXPECT_EQ(damaged.exit_code, 5);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("its hash differs"), HasSubstr("frozen weights")));
  fs::rename(away, file);  // nothing was set aside
  const Result good = run("run", {kFreeze, "train.max_steps=25"}, {"--accept"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
}

TEST_F(Freezing, TellsThatThePretrainedSourceIsAnother) {
  ASSERT_EQ(run("first", {"train.max_steps=1"}).exit_code, 0);
  ASSERT_EQ(run("second", {"train.max_steps=2"}).exit_code, 0);
  fs::create_directory(folder_ / "source");
  fs::copy(folder_ / "first/model.safetensors", folder_ / "source/model.safetensors");
  const std::vector<std::string> settings{kFreeze, "model.pretrained=" + folder_ / "source/model.safetensors"};
  ASSERT_EQ(run("run", settings).exit_code, 0);
  copy_without_the_end(folder_ / "run", folder_ / "again");
  fs::copy(folder_ / "second/model.safetensors", folder_ / "source/model.safetensors",
           fs::copy_options::overwrite_existing);
  const Result result = run("again", settings);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("gives other values than before"));
  EXPECT_EQ(losses_of(folder_ / "run"), losses_of(folder_ / "again"));
}

TEST_F(Freezing, RefusesPatternsThatMatchNothing) {
  const Result misspelt = run("run", {"model.freeze=[\"*.wte.*\", \"transformer.h.0.atn.*\"]"});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.err, AllOf(HasSubstr("'transformer.h.0.atn.*' matches no parameter"),
                                  HasSubstr("did you mean 'transformer.h.0.attn.*'")));
  const Result shortened = run("run", {"model.freeze=[\"h.0.*\"]"});
  EXPECT_THAT(shortened.err, HasSubstr("did you mean 'transformer.h.0.*'"));
  const Result nothing_left = run("run", {"model.freeze=[\"*\"]"});
  EXPECT_EQ(nothing_left.exit_code, 2);
  EXPECT_THAT(nothing_left.err, HasSubstr("nothing is left to train"));
  const Result group = run("run", {"optimizer.groups=[{match: \"head.*\", lr: 0.1x}]"});
  EXPECT_EQ(group.exit_code, 2);
  EXPECT_THAT(group.err, AllOf(HasSubstr("optimizer.groups[0].match"), HasSubstr("matches no parameter")));
}

TEST_F(Freezing, TakesLessMemoryAsTheDryRunSays) {
  const auto memory = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"run",          job_, "--dry-run", "--json",
                                       "--world-size", "1",  "--set",     "precision=bf16"};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const Result result = gputrain(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto all = memory({}), part = memory({"model.freeze=[\"*.wte.*\", \"*.h.*\"]"});
  const auto bytes = [](const nlohmann::json& dry, const char* what) { return dry["memory"][what].get<int64_t>(); };
  EXPECT_EQ(bytes(all, "frozen_weights"), 0);
  const int64_t trained = part["trainable_parameters"].get<int64_t>(), count = part["parameters"].get<int64_t>();
  EXPECT_LT(trained, count / 4);
  for (const char* what : {"weights", "gradients", "optimizer", "working_copy"})
    EXPECT_LT(bytes(part, what), bytes(all, what) / 3) << what;
  EXPECT_LT(bytes(part, "frozen_weights"), 3 * (count - trained));  // mostly two bytes each
  EXPECT_LT(part["checkpoint"]["bytes"], all["checkpoint"]["bytes"]);
  EXPECT_GT(part["checkpoint"]["frozen_bytes"], 0);
}

TEST_F(Freezing, WithoutFreezeAndGroupsWritesWhatItWrote) {
  ASSERT_EQ(run("plain", {}).exit_code, 0);
  ASSERT_EQ(run("grouped", {"optimizer.groups=[{match: \"*\", lr: 1x}]", "optimizer.layer_decay=1"}).exit_code, 0);
  EXPECT_EQ(read_file(folder_ / "plain/model.safetensors"), read_file(folder_ / "grouped/model.safetensors"));
  EXPECT_THAT(read_file(step("plain", "20") + "/manifest.json"), Not(HasSubstr("frozen")));
}

}  // namespace
}  // namespace gputrain::testing_support
