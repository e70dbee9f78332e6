// Our Vision Transformers and those of torchvision and timm give the same logits, loss and gradients for the same
// weights and images, and each side reads what the other writes.
#include <filesystem>
#include <fstream>
#include <map>
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
#include "gputrain/optim/spec.hpp"
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

const std::vector<std::string> kCases{"torchvision", "torchvision_resized", "torchvision_smaller", "timm",
                                      "timm_mean",   "timm_without_bias",   "timm_resized",        "timm_smaller"};

/// The model of this folder's case, without its weights.
std::unique_ptr<Model> vit_of(const fs::path& folder, const nn::Context& context = {}) {
  std::ifstream file(folder / "case.json");
  const auto told = nlohmann::json::parse(file);
  return build(load_job("model: {type: vit, config: " + told.at("options").dump() + "}\n"),
               {.input_shape = told.at("shape"), .num_classes = told.at("classes")}, context);
}

/// Runs the reference once for all tests.
class VitReferences final : public ::testing::Environment {
 public:
  void SetUp() override {
    for (const char* module : {"torchvision", "timm", "safetensors"}) {
      if (!gputrain::testing::has_reference(module)) return;
    }
    folder = fs::temp_directory_path() / ("gputrain-vit-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/vit_reference.py", {"make", folder}));
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  fs::path folder;
};
VitReferences* const references = [] {
  auto* environment = new VitReferences;
  ::testing::AddGlobalTestEnvironment(environment);  // takes ownership
  return environment;
}();

class VitParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("timm");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    folder_ = references->folder;
  }
  fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Models, VitParity, ::testing::ValuesIn(kCases), [](const auto& entry) { return entry.param; });

struct Tolerances {
  double values, gradients;
};

void expect_parity(const fs::path& folder, const nn::Context& context, const Tolerances& tolerances) {
  const auto model = vit_of(folder, context);
  const SafetensorsFile weights(folder / "model.safetensors"), expected(folder / "expected.safetensors");
  load_weights(*model, source_of(weights));
  const Batch batch =
      testing_support::batch_of(expected.tensor("inputs").to(context.policy.master), expected.tensor("targets"));
  const at::Tensor loss = testing_support::loss_of(*model, batch, 0.1).weighted;
  EXPECT_LT(relative_error(loss, expected.tensor("loss")), tolerances.values);
  loss.backward();
  expect_equal_gradients(*model, expected, tolerances.gradients);
  const at::NoGradGuard no_grad;
  for (const bool on : {true, false}) {
    model->train(on);
    const double error = relative_error(model->forward(batch.input()), expected.tensor("logits"));
    EXPECT_LT(error, tolerances.values);
  }
}

TEST_P(VitParity, MatchesLogitsLossAndGradients) {
  // Positions are interpolated in the type of the file, fp32.
  const bool is_interpolated = GetParam().ends_with("resized") || GetParam().ends_with("smaller");
  const double tolerance = is_interpolated ? 1e-6 : 1e-9;
  expect_parity(folder_ / GetParam(), {.policy = ops::policy_of(ops::Precision::fp64)}, {tolerance, tolerance});
}

TEST_P(VitParity, KeepsFiveDigitsInFp32) {
  for (const bool channels_last : {false, true})
    expect_parity(folder_ / GetParam(), {.channels_last = channels_last}, {.values = 1e-5, .gradients = 1e-4});
}

// But for the last norm, which timm gives the rate of the last block; BEiT and MAE give it that of the head.
TEST_P(VitParity, HasTimmsFactorsOfTheRateByLayer) {
  std::ifstream file(folder_ / GetParam() / "case.json");
  const auto factors = nlohmann::json::parse(file).at("factors");
  const auto model = vit_of(folder_ / GetParam());
  const auto units = model->units();
  const optim::OptimizerSpec optimizer{.layer_decay = 0.5};
  std::map<const void*, double> of_parameters;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (nn::Module* module : units[unit].modules) {
      module->each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
        of_parameters[parameter.value.unsafeGetTensorImpl()] =
            optimizer.settings_of(name, static_cast<int64_t>(unit), std::ssize(units)).lr_factor;
      });
    }
  }
  size_t compared = 0;
  model->each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
    if (factors.empty()) return;
    ASSERT_TRUE(factors.contains(name)) << name;
    const double expected = name.starts_with("norm.") ? 1 : factors.at(name).get<double>();
    EXPECT_DOUBLE_EQ(of_parameters.at(parameter.value.unsafeGetTensorImpl()), expected) << name;
    ++compared;
  });
  EXPECT_EQ(compared, factors.size());
}

TEST_F(VitParity, WritesFilesTheReferenceLoads) {
  for (const std::string& name : kCases) {
    const fs::path folder = folder_ / name / "ours";
    fs::create_directories(folder);
    const auto model = vit_of(folder_ / name);
    nn::initialize(*model, 5);
    model->train(false);
    const at::Tensor inputs = SafetensorsFile(folder_ / name / "expected.safetensors").tensor("inputs").to(at::kFloat);
    const at::NoGradGuard no_grad;
    checkpoint::write_safetensors(folder / "model.safetensors", tensors_of(*model));
    checkpoint::write_safetensors(folder / "results.safetensors",
                                  {{"inputs", inputs}, {"logits", model->forward(inputs)}});
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/vit_reference.py", {"check", folder_}));
}

}  // namespace
}  // namespace gputrain::models
