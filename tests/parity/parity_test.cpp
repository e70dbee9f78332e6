// The same weights and inputs in our models and in torchvision's and transformers' give the same logits, loss and
// gradients, and either side reads what the other writes.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using testing_support::relative_error;

const std::vector<std::string> kNames{"resnet18", "resnet50", "gpt2", "gpt2_untied", "llama", "llama_biased"};

/// The model that a job for this folder gets, its weights not yet filled.
std::unique_ptr<Model> model_of(const std::string& name, const fs::path& folder) {
  if (name.starts_with("resnet")) {
    return build(load_job("model: {type: " + name + "}\n"), {.input_shape = {3, 64, 64}, .num_classes = 10});
  }
  const std::string text = "model: {type: gpt}\n";
  std::ifstream file(folder / "config.json");
  const auto published = published_model(nlohmann::json::parse(file), folder / "config.json");
  const auto settings = settings_of(published, load_job(text), "model");
  return build(load_job(text, settings), {.input_shape = {20}, .num_classes = 89});
}

TensorSource source_of(const SafetensorsFile& file) {
  return {.where = file.path(), .names = file.names(), .tensor = [&file](const std::string& name) {
            return file.tensor(name);
          }};
}

bool has_references() {
  return gputrain::testing::has_reference("torchvision") && gputrain::testing::has_reference("transformers") &&
         gputrain::testing::has_reference("safetensors");
}

/// Runs the reference once, for all tests.
class References final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!has_references()) return;
    folder = fs::temp_directory_path() / ("gputrain-parity-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/parity_reference.py", {"make", folder}));
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  fs::path folder;
};
References* const references = [] {
  auto* environment = new References;
  ::testing::AddGlobalTestEnvironment(environment);  // which owns it from here
  return environment;
}();

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("transformers");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    folder_ = references->folder;
  }
  fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Models, Parity, ::testing::ValuesIn(kNames), [](const auto& entry) { return entry.param; });

/// ||d|| <= 1e-4 (||reference|| + 1e-3 ||all||): a gradient that is nearly zero is not asked for more digits than it
/// has.
void expect_equal_gradients(Model& model, const SafetensorsFile& expected) {
  std::map<std::string, at::Tensor> reference;
  double all = 0;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("gradient/")) continue;
    const at::Tensor gradient = expected.tensor(name);
    reference[name.substr(9)] = gradient;
    all += std::pow(gradient.norm().item<double>(), 2);
  }
  all = std::sqrt(all);
  size_t compared = 0;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    ASSERT_TRUE(reference.contains(name)) << name;
    const double difference = (parameter.value.grad() - reference[name]).norm().item<double>();
    EXPECT_LE(difference, 1e-4 * (reference[name].norm().item<double>() + 1e-3 * all)) << name;
    ++compared;
  });
  EXPECT_EQ(compared, reference.size());
}

TEST_P(Parity, WeightsOfTheReferenceGiveItsLogitsLossAndGradients) {
  const fs::path folder = folder_ / GetParam();
  const auto model = model_of(GetParam(), folder);
  const SafetensorsFile weights(folder / "model.safetensors"), expected(folder / "expected.safetensors");
  load_weights(*model, source_of(weights));
  const Batch batch{.inputs = expected.tensor("inputs"), .targets = expected.tensor("targets")};
  {
    const at::NoGradGuard no_grad;
    model->train(false);
    EXPECT_LT(relative_error(model->forward(batch.inputs), expected.tensor("logits_evaluated")), 1e-5);
  }
  model->train();
  const at::Tensor loss = model->loss(batch, 0.1);
  EXPECT_LT(relative_error(loss, expected.tensor("loss")), 1e-5);
  loss.backward();
  expect_equal_gradients(*model, expected);
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    EXPECT_LT(relative_error(buffer.value, expected.tensor("buffer/" + name)), 1e-5) << name;
  });
}

checkpoint::NamedTensors tensors_of(Model& model) {
  checkpoint::NamedTensors tensors;
  model.each_parameter(
      [&](const std::string& name, nn::Parameter& p) { tensors.emplace_back(name, p.value.detach()); });
  model.each_buffer([&](const std::string& name, nn::Buffer& b) { tensors.emplace_back(name, b.value); });
  return tensors;
}

TEST_F(Parity, WhatWeWriteLoadsInTheReferenceWithTheSameLogits) {
  for (const std::string& name : kNames) {
    const fs::path folder = folder_ / name / "ours";
    fs::create_directories(folder);
    const auto model = model_of(name, folder_ / name);
    nn::initialize(*model, 5);
    const at::Tensor inputs = SafetensorsFile(folder_ / name / "expected.safetensors").tensor("inputs");
    const at::NoGradGuard no_grad;
    model->forward(inputs);  // moves running statistics off their start
    model->train(false);
    checkpoint::write_safetensors(folder / "model.safetensors", tensors_of(*model));
    checkpoint::write_safetensors(folder / "results.safetensors",
                                  {{"inputs", inputs}, {"logits", model->forward(inputs)}});
    std::ofstream(folder / "config.json") << model->ecosystem_config().dump(2);
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/parity_reference.py", {"check", folder_}));
}

}  // namespace
}  // namespace gputrain::models
