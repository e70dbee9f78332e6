#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/models/model.hpp"
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

TEST(Mlp, FlattensImagesAndHasOneHiddenLayerByDefault) {
  const auto model = model_of("mlp", kMnist);
  EXPECT_EQ(parameters_of(*model), 784 * 256 + 256 + 256 * 10 + 10);
}

TEST(Resnet, HasAsManyParametersAsTorchvisions) {
  const std::vector<std::pair<std::string, int64_t>> expected{{"resnet18", 11689512},
                                                              {"resnet34", 21797672},
                                                              {"resnet50", 25557032},
                                                              {"resnet101", 44549160},
                                                              {"resnet152", 60192808}};
  for (const auto& [name, count] : expected) EXPECT_EQ(parameters_of(*model_of(name, kImageNet)), count) << name;
}

TEST(Resnet, CountsTheOperationsThatItsPublishedFiguresSay) {
  // Multiplications of one image forward as torchvision documents them ("GFLOPS"); a step is six times that.
  EXPECT_NEAR(model_of("resnet18", kImageNet)->flops_per_sample() / 6e9, 1.814, 0.002);
  EXPECT_NEAR(model_of("resnet50", kImageNet)->flops_per_sample() / 6e9, 4.089, 0.002);
  EXPECT_NEAR(model_of("resnet152", kImageNet)->flops_per_sample() / 6e9, 11.514, 0.005);
}

TEST(ImageModels, SayThatTokensAreNotImages) {
  for (const std::string name : {"convnet", "resnet18"}) {
    try {
      model_of(name, {.input_shape = {64}, .num_classes = 65});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr("gpt"));
    }
  }
}

}  // namespace
}  // namespace gputrain::models
