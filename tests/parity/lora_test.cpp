// Our LoRA and PEFT's give the same logits and train alike, and each side reads what the other writes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/device/arena.hpp"
#include "models/adapted.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "optim/optim_fixture.hpp"
#include "support/batches.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::NamedTensors;
using checkpoint::WeightFiles;
using testing_support::relative_error;

struct Case {
  std::string name;
  std::string options = {};  // of an adapter that begins anew; empty: it begins with PEFT's
  double lr_of_b = 1;        // factor of the rate of lora_B, as LoRA+ has it
};

const std::vector<Case> kCases{{"llama"},
                               {"llama_saved"},
                               {"llama_head"},
                               {"qwen2"},
                               {"gpt2"},
                               {"llama_dora"},
                               {"qwen2_dora"},
                               {"gpt2_dora"},
                               {"llama_sizes"},
                               {.name = "llama_plus", .lr_of_b = 16},
                               {"llama_pissa", "rank: 4, alpha: 8, init: pissa"},
                               {"gpt2_pissa", "rank: 4, alpha: 6, init: pissa"},
                               {"llama_olora", "rank: 4, alpha: 8, init: olora"},
                               {"llama_pissa_dora", "rank: 4, alpha: 8, init: pissa, dora: true, rslora: true"}};

class PeftParity : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("peft");
    GPUTRAIN_NEED_REFERENCE("transformers");
    fs::create_directories(folder_);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/lora_reference.py", {"make", folder_}));
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain-peft-" + std::to_string(getpid()));
};

TensorSource source_of(const WeightFiles& files) {
  return {.where = files.path().string(), .names = files.names(), .tensor = [&files](const std::string& name) {
            return files.tensor(name);
          }};
}

/// The base of this folder with its adapter.
struct Adapted {
  Adapted(const fs::path& folder, const Case& of)
      : adapter(lora(of.options.empty() ? "pretrained: " + (folder / "adapter").string() : of.options)) {
    std::ifstream file(folder / "base/config.json");
    const auto published = published_model(nlohmann::json::parse(file), folder / "base");
    const std::string text = "model: {type: gpt}\n";
    model = build(load_job(text, settings_of(published, load_job(text), "model")),
                  {.input_shape = {20}, .num_classes = 89});
    adapter->adapt(*model);
    std::vector<device::ArenaTensor> tensors;
    model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      tensors.push_back({.name = name, .value = parameter.value, .trainable = parameter.trainable});
      if (name.ends_with("lora_B.weight")) tensors.back().settings.lr_factor = of.lr_of_b;
    });
    arena = std::make_unique<device::Arena>(tensors);
    nn::initialize(*model, 1);
    load_weights(*model, source_of(WeightFiles(folder / "base")), OtherClasses::left_out);
    fit_branches(*model);
    find_starts(*model);
    start_branches(*model);
    if (of.options.empty()) load_adapter(*model, source_of(WeightFiles(folder / "adapter" / kAdapterWeights)));
  }
  at::Tensor logits(const at::Tensor& tokens) const {
    const at::NoGradGuard no_grad;
    return model->forward(tokens);
  }
  std::unique_ptr<Adapter> adapter;
  std::unique_ptr<Model> model;
  std::unique_ptr<device::Arena> arena;
};

/// The losses of AdamW's steps, each of the mean over its targets.
std::vector<double> train(Adapted& adapted, const at::Tensor& batches) {
  const auto rule = optim::optimizer_of("{type: adamw, weight_decay: 0.01}", *adapted.arena);
  std::vector<double> losses;
  for (int64_t step = 0; step < batches.size(0); ++step) {
    const at::Tensor tokens = batches[step], targets = tokens.narrow(1, 1, tokens.size(1) - 1).contiguous();
    const Batch batch = testing_support::batch_of(tokens.narrow(1, 0, tokens.size(1) - 1), targets);
    adapted.arena->clear_gradients();
    const at::Tensor loss = testing_support::loss_of(*adapted.model, batch).weighted;
    const auto count = static_cast<double>(targets.numel());
    loss.backward();
    losses.push_back(loss.item<double>() / count);
    const at::NoGradGuard no_grad;
    rule->step({.lr = at::full({}, 1e-3, at::kDouble), .found_inf = {}, .divisor = at::full({1}, count, at::kFloat)});
  }
  return losses;
}

/// As a run's end does.
void write_adapter(Adapted& adapted, const fs::path& base, const fs::path& to) {
  fs::create_directories(to);
  checkpoint::write_safetensors(to / kAdapterWeights, adapter_weights(*adapted.model));
  std::ofstream(to / kAdapterConfig) << adapted.adapter->config_of(*adapted.model, base.string()).dump();
}

void write_merged(Adapted& adapted, const fs::path& base, const fs::path& to) {
  merge_adapter(*adapted.model);
  const auto added = branch_tensors(*adapted.model);
  NamedTensors tensors;
  adapted.model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (std::ranges::find(added, name) == added.end()) tensors.emplace_back(name, parameter.value.detach());
  });
  fs::create_directories(to);
  checkpoint::write_safetensors(to / "model.safetensors", tensors, {{"format", "pt"}});
  fs::copy_file(base / "config.json", to / "config.json");
}

TEST_F(PeftParity, ComputesTrainsAndWritesAsPeft) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    const fs::path folder = folder_ / one.name;
    const checkpoint::SafetensorsFile expected(folder / "expected.safetensors");
    Adapted adapted(folder, one);
    const at::Tensor inputs = expected.tensor("inputs");
    EXPECT_LT(relative_error(adapted.logits(inputs), expected.tensor("logits")), 1e-5);
    const auto losses = train(adapted, expected.tensor("batches"));
    const at::Tensor theirs = expected.tensor("losses");
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto loss = theirs[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(losses[i], loss, 1e-5 * loss) << "step " << i + 1;
    }
    const at::Tensor logits = adapted.logits(inputs);
    EXPECT_LT(relative_error(logits, expected.tensor("trained")), 1e-4);
    write_adapter(adapted, folder / "base", folder / "ours");
    write_merged(adapted, folder / "base", folder / "merged");
    EXPECT_LT(relative_error(adapted.logits(inputs), logits), 1e-5);
    checkpoint::write_safetensors(folder / "results.safetensors", {{"inputs", inputs}, {"logits", logits}});
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/lora_reference.py", {"check", folder_}));
}

}  // namespace
}  // namespace gputrain::models
