// Our ConvNeXt, MobileNetV3 and EfficientNetV2 and those of torchvision, a list of layers and torch.nn.Sequential, and
// our U-Net and one of torch's layers give the same logits, loss, gradients and running statistics for the same weights
// and images, and each side reads what the other writes.
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
#include "gputrain/nn/layers.hpp"
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

const std::vector<std::string> kCases{
    "convnext", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_v2_s", "sequential", "unet", "unet_bilinear"};

nlohmann::json json_of(const fs::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// The model of this folder's case, without its weights.
std::unique_ptr<Model> model_of(const fs::path& folder, const nn::Context& context = {}) {
  const auto told = json_of(folder / "case.json");
  const std::string name = told.at("model");
  return build(load_job("model: {type: " + name + ", config: " + told.at("options").dump() + "}\n"),
               {.input_shape = told.at("shape"), .num_classes = told.at("classes")}, context);
}

/// Runs the reference once for all tests.
class ImageModelReferences final : public ::testing::Environment {
 public:
  void SetUp() override {
    for (const char* module : {"torchvision", "timm", "safetensors"}) {
      if (!gputrain::testing::has_reference(module)) return;
    }
    folder = fs::temp_directory_path() / ("gputrain-image-models-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/image_models_reference.py", {"make", folder}));
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  fs::path folder;
};
ImageModelReferences* const references = [] {
  auto* environment = new ImageModelReferences;
  ::testing::AddGlobalTestEnvironment(environment);  // takes ownership
  return environment;
}();

class ImageModelParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("timm");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    folder_ = references->folder;
  }
  fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Models, ImageModelParity, ::testing::ValuesIn(kCases),
                         [](const auto& entry) { return entry.param; });

struct Tolerances {
  double evaluated, trained, gradients;
};

void expect_equal_buffers(Model& model, const SafetensorsFile& expected, double tolerance) {
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    const at::Tensor reference = expected.tensor("buffer/" + name);
    if (buffer.value.is_floating_point()) {
      EXPECT_LT(relative_error(buffer.value, reference), tolerance) << name;
    } else {
      EXPECT_TRUE(buffer.value.equal(reference)) << name;
    }
  });
}

void expect_parity(const fs::path& folder, const nn::Context& context, const Tolerances& tolerances) {
  const auto model = model_of(folder, context);
  const SafetensorsFile weights(folder / "model.safetensors"), expected(folder / "expected.safetensors");
  load_weights(*model, source_of(weights));
  const Batch batch =
      testing_support::batch_of(expected.tensor("inputs").to(context.policy.master), expected.tensor("targets"));
  const auto expect_logits = [&](const char* name, double tolerance) {
    const at::NoGradGuard no_grad;
    EXPECT_LT(relative_error(model->forward(batch.input()), expected.tensor(name)), tolerance) << name;
  };
  model->train(false);
  expect_logits("evaluated", tolerances.evaluated);
  model->train();
  const at::Tensor loss = testing_support::loss_of(*model, batch, 0.1).weighted;
  EXPECT_LT(relative_error(loss, expected.tensor("loss")), tolerances.trained);
  loss.backward();
  expect_equal_gradients(*model, expected, tolerances.gradients);
  expect_equal_buffers(*model, expected, tolerances.trained);
  expect_logits("logits", tolerances.trained);
}

TEST_P(ImageModelParity, MatchesLogitsLossGradientsAndStatistics) {
  for (const bool channels_last : {false, true}) {
    expect_parity(folder_ / GetParam(),
                  {.policy = ops::policy_of(ops::Precision::fp64), .channels_last = channels_last},
                  {.evaluated = 1e-9, .trained = 1e-9, .gradients = 1e-9});
  }
}

TEST_P(ImageModelParity, KeepsFiveDigitsInFp32) {
  // In training, dozens of batch norms over sixteen values amplify rounding.
  const bool has_batch_norm = GetParam() != "convnext";
  for (const bool channels_last : {false, true}) {
    expect_parity(
        folder_ / GetParam(), {.channels_last = channels_last},
        {.evaluated = 1e-5, .trained = has_batch_norm ? 1e-4 : 1e-5, .gradients = has_batch_norm ? 1e-2 : 1e-4});
  }
}

TEST_F(ImageModelParity, WritesFilesTorchvisionLoadsAndStartsAsItDoes) {
  for (const std::string& name : kCases) {
    const fs::path folder = folder_ / name / "ours";
    fs::create_directories(folder);
    const auto model = model_of(folder_ / name);
    nn::initialize(*model, 5);
    model->train(false);
    const at::Tensor inputs = SafetensorsFile(folder_ / name / "expected.safetensors").tensor("inputs").to(at::kFloat);
    const at::NoGradGuard no_grad;
    checkpoint::write_safetensors(folder / "model.safetensors", tensors_of(*model));
    checkpoint::write_safetensors(folder / "results.safetensors",
                                  {{"inputs", inputs}, {"logits", model->forward(inputs)}});
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/image_models_reference.py", {"check", folder_}));
}

TEST_F(ImageModelParity, ReadsTimmsNamesOfConvNext) {
  const auto model = model_of(folder_ / "timm");
  const SafetensorsFile weights(folder_ / "timm" / "model.safetensors"),
      expected(folder_ / "timm" / "expected.safetensors");
  load_weights(*model, source_of(weights));
  model->train(false);
  const at::NoGradGuard no_grad;
  EXPECT_LT(relative_error(model->forward(expected.tensor("inputs")), expected.tensor("logits")), 1e-5);
}

TEST_F(ImageModelParity, HasTensorsDropoutAndOperationsOfPublishedModels) {
  const auto told = json_of(folder_ / "published.json");
  for (const auto& [name, published] : told.items()) {
    const int64_t size = published.at("size");
    const auto model = catalog().make(catalog().with_defaults(name), {.takes_no_memory = true},
                                      {.input_shape = {3, size, size}, .num_classes = 1000});
    std::map<std::string, std::vector<int64_t>> shapes;
    std::map<std::string, double> dropouts;
    model->each_parameter([&](const std::string& key, nn::Parameter& one) { shapes[key] = one.value.sizes().vec(); });
    model->each_buffer([&](const std::string& key, nn::Buffer& one) { shapes[key] = one.value.sizes().vec(); });
    model->each_module([&](const std::string& key, nn::Module& module) {
      double probability = 0;
      if (const auto* dropout = dynamic_cast<nn::Dropout*>(&module)) probability = dropout->active_probability();
      if (const auto* path = dynamic_cast<nn::DropPath*>(&module)) probability = path->active_probability();
      if (probability > 0) dropouts[key] = probability;
    });
    EXPECT_EQ(shapes, (published.at("shapes").get<decltype(shapes)>())) << name;
    const auto expected = published.at("dropouts").get<decltype(dropouts)>();
    EXPECT_EQ(dropouts.size(), expected.size()) << name;
    for (const auto& [key, probability] : expected) EXPECT_NEAR(dropouts[key], probability, 1e-12) << name << key;
    EXPECT_NEAR(model->flops_per_sample() / 6e9 / published.at("billions").get<double>(), 1, 0.01) << name;
  }
}

}  // namespace
}  // namespace gputrain::models
