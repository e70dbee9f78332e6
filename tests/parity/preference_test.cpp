// Learning from preferences: losses, rewards and gradients as TRL computes them, from the same files and weights.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <unistd.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/models/pretrained.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"
#include "parity/reference_files.hpp"
#include "support/python_reference.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

struct PreferenceCase {
  std::string name, task;
  std::string data = "pairs", base = "base", options = {};
  std::string then = "policy";  // weights that are loaded once the references are taken; empty: those of the base
};

void PrintTo(const PreferenceCase& one, std::ostream* out) { *out << one.name; }

/// Runs the reference once for all tests.
class PreferenceReferences final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!gputrain::testing::has_reference("trl") || !gputrain::testing::has_reference("datasets")) return;
    folder = fs::temp_directory_path() / ("gputrain-preferences-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/preference_reference.py", {folder}));
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  fs::path folder;
};
PreferenceReferences* const references = [] {
  auto* environment = new PreferenceReferences;
  ::testing::AddGlobalTestEnvironment(environment);  // takes ownership
  return environment;
}();

class PreferenceParity : public ::testing::TestWithParam<PreferenceCase> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("trl");
    GPUTRAIN_NEED_REFERENCE("datasets");
  }
};
INSTANTIATE_TEST_SUITE_P(
    Preferences, PreferenceParity,
    ::testing::Values(
        PreferenceCase{.name = "dpo", .task = "{type: dpo, config: {beta: 0.3}}"},
        PreferenceCase{.name = "hinge", .task = "{type: dpo, config: {beta: 0.3, loss: hinge}}"},
        PreferenceCase{.name = "ipo", .task = "{type: dpo, config: {beta: 0.3, loss: ipo}}"},
        PreferenceCase{.name = "conversations", .task = "{type: dpo, config: {beta: 0.3}}", .data = "conversations"},
        PreferenceCase{.name = "adapted",
                       .task = "{type: dpo, config: {beta: 0.3}}",
                       .options = "adapter: {type: lora, rank: 4, alpha: 8, target_modules: all-linear}",
                       .then = "adapter"},
        PreferenceCase{.name = "orpo", .task = "{type: orpo, config: {beta: 0.2}}", .data = "even"},
        PreferenceCase{.name = "simpo", .task = "{type: simpo, config: {beta: 2, gamma: 1}}"},
        PreferenceCase{
            .name = "kto", .task = "{type: kto, config: {beta: 0.3, desirable_weight: 1.5}}", .data = "ratings"},
        PreferenceCase{
            .name = "reward", .task = "{type: reward, config: {center: 0.05}}", .base = "scorer", .then = ""}),
    [](const auto& entry) { return entry.param.name; });

Job job_of(const PreferenceCase& one, const fs::path& folder, bool packs) {
  const fs::path file = folder / (one.name + ".yaml");
  std::ofstream(file) << "model:\n  type: gpt\n  pretrained: " << (folder / one.base).string() << "\n  "
                      << (one.options.empty() ? "" : one.options) << "\ntask: " << one.task
                      << "\ndata:\n  train: {format: jsonl, path: " << (folder / (one.data + ".jsonl")).string()
                      << "}\n  text: {tokenizer: pretrained" << (packs ? ", packing: true, max_length: 48" : "")
                      << "}\ntrain: {max_epochs: 1, global_batch_size: 6, micro_batch_size: 6}\n"
                      << "device: cpu\n";
  return load_job({.file = file.string(), .output_dir = (folder / ("run-" + one.name)).string()});
}

/// All samples, as a step reads them.
Batch whole_batch(const Job& job, const TrainingSetup& setup) {
  data::LoaderOptions options = loader_options(job.spec(), *setup.datasets.train, setup.context, setup.plan.batch);
  options.shuffle = false;
  data::Loader loader(setup.datasets.train, options);
  const data::Preprocess preprocess(*setup.datasets.train,
                                    input_format(job.spec(), *setup.datasets.train, setup.context));
  return preprocess(loader.next_step().micro_batches.at(0));
}

void load_later_weights(const PreferenceCase& one, const fs::path& folder, BuiltModel& built) {
  if (one.then.empty()) return;
  if (built.adapter) return load_adapter(built, folder / one.then);
  load_weights(built, folder / one.then);
}

/// PEFT's names of an adapter, else those of files.
std::map<std::string, at::Tensor> gradients_of(BuiltModel& built) {
  std::map<std::string, at::Tensor> gradients;
  if (built.adapter) {
    for (const auto& [name, value] : models::adapter_weights(*built.model)) gradients[name] = value;
    built.model->each_parameter([&](const std::string&, nn::Parameter& parameter) {
      for (auto& [name, value] : gradients)
        if (parameter.trainable && value.data_ptr() == parameter.value.data_ptr()) value = parameter.value.grad();
    });
    return gradients;
  }
  built.model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    gradients[models::file_name(*built.model, name)] = parameter.value.grad();
  });
  return gradients;
}

/// Compares the loss, the gradients and the mean rewards of all samples.
void expect_as_trl(const PreferenceCase& one, bool packs) {
  const fs::path& folder = references->folder;
  const checkpoint::SafetensorsFile expected(folder / (one.name + ".safetensors"));
  const Job job = job_of(one, folder, packs);
  TrainingSetup setup(job);
  fs::create_directories(job.output_dir);
  take_references(job, setup, {.file = RunFolder{job.output_dir}.references()});
  load_later_weights(one, folder, setup.built);
  const Batch batch = whole_batch(job, setup);
  ASSERT_EQ(batch.weight, 6);
  ASSERT_EQ(batch.samples < 6, packs);
  setup.built.model->train(true);
  setup.built.arena->clear_gradients();
  const auto loss = setup.datasets.task->loss(*setup.built.model, batch, at::full({}, 1.0 / 6, at::kDouble));
  loss.weighted.backward();
  const auto near = [&](double found, const char* name) {
    const auto theirs = expected.tensor(name).item<double>();
    EXPECT_NEAR(found, theirs, 1e-5 * std::max(1.0, std::abs(theirs))) << name;
  };
  near(loss.sum.item<double>() / 6, "loss");

  double all = 0;
  std::map<std::string, at::Tensor> theirs;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("gradient/")) continue;
    theirs[name.substr(9)] = expected.tensor(name);
    all += std::pow(theirs[name.substr(9)].norm().item<double>(), 2);
  }
  all = std::sqrt(all);
  ASSERT_GT(all, 1e-3);
  const auto ours = gradients_of(setup.built);
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, gradient] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << name;
    const auto difference = (gradient - theirs[name]).norm().item<double>();
    EXPECT_LE(difference, 1e-5 * (theirs[name].norm().item<double>() + all)) << name;
  }

  const at::NoGradGuard no_grad;
  tasks::Tally tally(setup.datasets.task->parts(), at::kCPU);
  tally.add_weight(batch.weight);
  setup.built.model->train(false);
  setup.datasets.task->evaluate(*setup.built.model, batch, tally);
  const auto totals = tally.merge(setup.context.groups);
  for (const auto& [name, metric] : {std::pair{"chosen", "chosen_reward"}, std::pair{"rejected", "rejected_reward"}})
    if (expected.has(name)) near(setup.datasets.task->find(metric)->finish(totals), name);
}

TEST_P(PreferenceParity, LossRewardsAndGradientsAreTrls) { expect_as_trl(GetParam(), false); }

TEST_P(PreferenceParity, TheyAreTheSameWhereSamplesShareRows) {
  if (GetParam().name != "reward") return expect_as_trl(GetParam(), true);
  EXPECT_THROW(TrainingSetup(job_of(GetParam(), references->folder, true)), Error);  // it reads each answer by itself
}

}  // namespace
}  // namespace gputrain::app
