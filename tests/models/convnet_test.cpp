#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"

namespace gputrain::models {
namespace {

using testing::HasSubstr;
using testing_support::random_leaf;

const DataFacts kMnist{.input_shape = {1, 28, 28}, .num_classes = 10};
const DataFacts kImageNet{.input_shape = {3, 224, 224}, .num_classes = 1000};

std::unique_ptr<Model> model_of(const std::string& name, const DataFacts& facts) {
  return catalog().make({name, catalog().find(name)->schema->create()}, {}, facts);
}

int64_t parameters_of(Model& model) {
  int64_t count = 0;
  model.each_parameter([&](const std::string&, nn::Parameter& parameter) { count += parameter.value.numel(); });
  return count;
}

TEST(Mlp, FlattensImagesWithOneHiddenLayer) {
  const auto model = model_of("mlp", kMnist);
  EXPECT_EQ(parameters_of(*model), 784 * 256 + 256 + 256 * 10 + 10);
}

TEST(Resnet, MatchesParameterCountsOfTorchvision) {
  const std::vector<std::pair<std::string, int64_t>> expected{{"resnet18", 11689512},
                                                              {"resnet34", 21797672},
                                                              {"resnet50", 25557032},
                                                              {"resnet101", 44549160},
                                                              {"resnet152", 60192808}};
  for (const auto& [name, count] : expected) EXPECT_EQ(parameters_of(*model_of(name, kImageNet)), count) << name;
}

TEST(Resnet, MatchesPublishedOperationCounts) {
  // torchvision documents the forward multiplications per image ("GFLOPS"); a training step needs six times as many
  // operations.
  EXPECT_NEAR(model_of("resnet18", kImageNet)->flops_per_sample() / 6e9, 1.814, 0.002);
  EXPECT_NEAR(model_of("resnet50", kImageNet)->flops_per_sample() / 6e9, 4.089, 0.002);
  EXPECT_NEAR(model_of("resnet152", kImageNet)->flops_per_sample() / 6e9, 11.514, 0.005);
}

/// Published architectures; weights and biases per layer counted by hand.
struct Published {
  std::string options;
  std::vector<int64_t> input_shape;
  int64_t parameters;
};

TEST(Convnet, BuildsPublishedSmallNetworks) {
  const std::vector<Published> published{
      // MNIST: 3x3, 16 and 32 channels, each with pooling, 128 hidden units.
      {"channels: [16, 32], hidden: [128], dropout: 0.25",
       {1, 28, 28},
       (9 * 16 + 16) + (9 * 16 * 32 + 32) + (7 * 7 * 32 * 128 + 128) + 1290},
      // MNIST: 5x5, 32 and 64 channels, each with pooling.
      {"channels: [32, 64], kernel_size: 5, hidden: []",
       {1, 28, 28},
       (25 * 32 + 32) + (25 * 2048 + 64) + (3136 * 10 + 10)},
      // CIFAR-10: three stages with stride 2, each with a residual pair; global max-pool.
      {"channels: [32, 64, 128], downsample: stride, batch_norm: true, residual: true, global_pool: max, hidden: []",
       {3, 32, 32},
       9 * (3 * 32 + 32 * 64 + 64 * 128) + 18 * (1024 + 4096 + 16384) + 3 * 2 * (32 + 64 + 128) + 1290}};
  for (const auto& [options, shape, parameters] : published) {
    const auto model = build(load_job("model: {type: convnet, config: {" + options + "}}\n"),
                             {.input_shape = shape, .num_classes = 10});
    nn::initialize(*model, 1);
    EXPECT_EQ(parameters_of(*model), parameters) << options;
    const at::NoGradGuard no_grad;
    std::vector<int64_t> batch{2};
    batch.insert(batch.end(), shape.begin(), shape.end());
    EXPECT_EQ(model->forward(random_leaf(batch, 1, at::kFloat)).sizes(), (at::IntArrayRef{2, 10})) << options;
  }
}

TEST(Convnet, RefusesEvenFiltersAndTinyImages) {
  EXPECT_THROW(load_job("model: {type: convnet, config: {kernel_size: 4}}\n"), Error);
  const auto job = load_job("model: {type: convnet, config: {channels: [8, 8, 8, 8, 8]}}\n");
  try {
    build(job, kMnist);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("28 x 28 cannot be halved 5 times"));
  }
}

TEST(Convnext, RefusesTinyImagesAndUnequalLists) {
  EXPECT_THROW(load_job("model: {type: convnext, config: {blocks: [1, 2]}}\n"), Error);
  const auto job = load_job("model: {type: convnext, config: {blocks: [1, 1, 1], channels: [4, 8, 12]}}\n");
  EXPECT_NO_THROW(build(job, {.input_shape = {1, 16, 20}, .num_classes = 10}));
  try {
    build(job, {.input_shape = {1, 15, 20}, .num_classes = 10});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("15 x 20 has no pixel left after 3 stages"));
    EXPECT_THAT(error.what(), HasSubstr("data.image.size: 16"));
  }
}

TEST(ImageModels, RefuseTokens) {
  for (const std::string name : {"convnet", "resnet18", "vit", "convnext", "mobilenet_v3_small", "efficientnet_v2_s"}) {
    try {
      model_of(name, {.input_shape = {64}, .num_classes = 65});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr("gpt"));
    }
  }
}

std::string refusal_of_layers(const std::string& layers, const DataFacts& facts = kMnist) {
  try {
    build(load_job("model: {type: sequential, config: {layers: [" + layers + "]}}\n"), facts);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sequential, NamesTheLayerThatDoesNotFit) {
  const std::string linear = "{type: flatten}, {type: linear}";
  EXPECT_EQ(refusal_of_layers(linear), "accepted");
  const auto expect = [&](const std::string& layers, const std::vector<std::string>& parts) {
    const std::string refusal = refusal_of_layers(layers);
    for (const std::string& part : parts) EXPECT_THAT(refusal, HasSubstr(part)) << layers;
  };
  expect("{type: conv2d, channels: 4}, {type: relu}, {type: linear}",
         {"model.config.layers[2]", "linear needs a vector", "relu before it gives [4, 28, 28]", "flatten"});
  expect("{type: flatten}, {type: conv2d, channels: 4}, " + linear,
         {"model.config.layers[1]", "conv2d needs an image", "flatten before it gives [784]"});
  expect("{type: conv2d, channels: 4, kernel_size: 31, padding: 0}, " + linear,
         {"model.config.layers[0]", "at least 31 x 31", "the data gives [1, 28, 28]"});
  expect("{type: conv2d, channels: 4, groups: 3}, " + linear, {"model.config.layers[0]", "3 groups divide"});
  expect("{type: flatten}, {type: linear, features: 5}", {"model.config.layers[1]", "10"});
  expect("{type: flatten}, {type: relu}", {"the last layer must be linear"});
  expect("{type: flatten}, {type: lineal}", {"lineal", "linear"});
  expect("{type: flatten}, {type: linear, width: 5}", {"width"});
  EXPECT_THAT(refusal_of_layers(linear, {.input_shape = {6}, .num_classes = 9, .vocabulary = 9}), HasSubstr("tokens"));
}

TEST(Sequential, LeavesItsInputsAlone) {
  const auto model = build(load_job("model: {type: sequential, config: {layers: [{type: relu}, {type: flatten}, "
                                    "{type: linear}]}}\n"),
                           kMnist);
  const at::Tensor images = random_leaf({2, 1, 28, 28}, 1, at::kFloat).detach(), before = images.clone();
  model->forward(images);
  EXPECT_TRUE(images.equal(before));
}

}  // namespace
}  // namespace gputrain::models
