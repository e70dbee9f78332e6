// Our models and those of torchvision and transformers give the same logits, loss and gradients for the same weights
// and inputs, and each side reads what the other writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "parity/reference_files.hpp"
#include "support/batches.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using testing_support::relative_error;

const std::vector<std::string> kNames{"resnet18",
                                      "resnet50",
                                      "resnet18_decided",
                                      "resnet50_decided",
                                      "gpt2",
                                      "gpt2_untied",
                                      "gpt_neox",
                                      "gpt_neox_serial",
                                      "llama",
                                      "llama_biased",
                                      "llama_scaled",
                                      "llama_linear",
                                      "llama_yarn",
                                      "llama_heads",
                                      "gemma3",
                                      "mistral",
                                      "mixtral",
                                      "olmo2",
                                      "phi3",
                                      "qwen2",
                                      "qwen2_yarn",
                                      "qwen2_windowed",
                                      "qwen3",
                                      "qwen3_windowed",
                                      "qwen3_moe",
                                      "qwen3_moe_mixed"};

/// The model that a job builds for this folder, without its weights.
std::unique_ptr<Model> model_of(const std::string& name, const fs::path& folder, const nn::Context& context = {}) {
  if (name.starts_with("resnet")) {
    const std::string type = name.substr(0, name.find('_'));
    return build(load_job("model: {type: " + type + "}\n"), {.input_shape = {3, 64, 64}, .num_classes = 10}, context);
  }
  const std::string text = "model: {type: gpt}\n";
  std::ifstream file(folder / "config.json");
  const auto published = published_model(nlohmann::json::parse(file), folder / "config.json");
  const auto settings = settings_of(published, load_job(text), "model");
  return build(load_job(text, settings), {.input_shape = {20}, .num_classes = 89}, context);
}

bool has_references() {
  return gputrain::testing::has_reference("torchvision") && gputrain::testing::has_reference("transformers") &&
         gputrain::testing::has_reference("safetensors");
}

/// Runs the reference once for all tests.
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
  ::testing::AddGlobalTestEnvironment(environment);  // takes ownership
  return environment;
}();

class ModelParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("transformers");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    folder_ = references->folder;
  }
  fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Models, ModelParity, ::testing::ValuesIn(kNames),
                         [](const auto& entry) { return entry.param; });

/// Images in this type; tokens unchanged.
at::Tensor inputs_of(const SafetensorsFile& expected, at::ScalarType type) {
  const at::Tensor inputs = expected.tensor("inputs");
  return inputs.is_floating_point() ? inputs.to(type) : inputs;
}

/// Allowed relative errors.
struct Tolerances {
  double values, gradients;
};

/// Loads the reference's weights and compares logits, loss, gradients and running statistics.
void expect_parity(const std::string& name, const fs::path& folder, const nn::Context& context,
                   const Tolerances& tolerances) {
  const auto model = model_of(name, folder, context);
  const SafetensorsFile weights(folder / "model.safetensors"), expected(folder / "expected.safetensors");
  load_weights(*model, source_of(weights));
  const Batch batch = testing_support::batch_of(inputs_of(expected, context.policy.master), expected.tensor("targets"));
  {
    const at::NoGradGuard no_grad;
    model->train(false);
    EXPECT_LT(relative_error(model->forward(batch.input()), expected.tensor("logits_evaluated")), tolerances.values);
  }
  model->train();
  const at::Tensor loss = testing_support::loss_of(*model, batch, 0.1).weighted;
  EXPECT_LT(relative_error(loss, expected.tensor("loss")), tolerances.values);
  loss.backward();
  expect_equal_gradients(*model, expected, tolerances.gradients);
  model->each_buffer([&](const std::string& buffer_name, nn::Buffer& buffer) {
    EXPECT_LT(relative_error(buffer.value, expected.tensor("buffer/" + buffer_name)), tolerances.values) << buffer_name;
  });
  const at::NoGradGuard no_grad;
  EXPECT_LT(relative_error(model->forward(batch.input()), expected.tensor("logits")), tolerances.values);
}

TEST_P(ModelParity, MatchesLogitsLossAndGradients) {
  // transformers computes rotary angles in fp32 for every model type.
  const bool is_rotary = !GetParam().starts_with("gpt2") && !GetParam().starts_with("resnet");
  const double tolerance = is_rotary ? 1e-6 : 1e-9;
  expect_parity(GetParam(), folder_ / GetParam(), {.policy = ops::policy_of(ops::Precision::fp64)},
                {.values = tolerance, .gradients = tolerance});
}

constexpr Tolerances kFp32{.values = 1e-5, .gradients = 1e-4};

class SinglePrecisionParity : public ModelParity {};
INSTANTIATE_TEST_SUITE_P(Models, SinglePrecisionParity,
                         ::testing::Values("resnet18_decided", "resnet50_decided", "gpt2", "gpt2_untied", "gpt_neox",
                                           "llama", "llama_biased", "gemma3", "mistral", "mixtral", "olmo2", "phi3",
                                           "qwen2", "qwen3", "qwen3_moe"),
                         [](const auto& entry) { return entry.param; });

TEST_P(SinglePrecisionParity, KeepsFiveDigits) { expect_parity(GetParam(), folder_ / GetParam(), {}, kFp32); }

class ChannelsLastParity : public ModelParity {};
INSTANTIATE_TEST_SUITE_P(Models, ChannelsLastParity, ::testing::Values("resnet18_decided", "resnet50_decided"),
                         [](const auto& entry) { return entry.param; });

TEST_P(ChannelsLastParity, KeepsFiveDigits) {
  expect_parity(GetParam(), folder_ / GetParam(), {.channels_last = true}, kFp32);
}

TEST_F(ModelParity, WritesFilesTheReferenceLoads) {
  for (const std::string& name : kNames) {
    const fs::path folder = folder_ / name / "ours";
    fs::create_directories(folder);
    const auto model = model_of(name, folder_ / name);
    nn::initialize(*model, 5);
    const at::Tensor inputs = inputs_of(SafetensorsFile(folder_ / name / "expected.safetensors"), at::kFloat);
    const at::NoGradGuard no_grad;
    model->forward(inputs);  // changes the running statistics
    model->train(false);
    checkpoint::write_safetensors(folder / "model.safetensors", tensors_of(*model));
    checkpoint::write_safetensors(folder / "results.safetensors",
                                  {{"inputs", inputs}, {"logits", model->forward(inputs)}});
    std::ofstream(folder / "config.json") << published_config(*model).dump(2);
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/parity_reference.py", {"check", folder_}));
}

}  // namespace
}  // namespace gputrain::models
