#include <limits>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "models/weights.hpp"

namespace gputrain::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(LoadWeights, FillsEveryParameterFromAnotherType) {
  Tiny tiny;
  load_weights(tiny.model, source_of(tiny.tensors));
  tiny.model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
    EXPECT_EQ(parameter.value.scalar_type(), at::kFloat);
    EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
    EXPECT_TRUE(parameter.value.requires_grad()) << name;
  });
}

TEST(LoadWeights, ReadsBareTransformerWithMasksAndTiedHead) {
  Tiny tiny;
  std::map<std::string, at::Tensor> bare;
  for (const auto& [name, tensor] : tiny.tensors) bare[name.substr(std::string("transformer.").size())] = tensor;
  bare["h.0.attn.bias"] = at::ones({1, 1, 4, 4});
  bare["h.0.attn.masked_bias"] = at::ones({});
  load_weights(tiny.model, source_of(bare));
  tiny.tensors["lm_head.weight"] = at::ones({5, 8});
  load_weights(tiny.model, source_of(tiny.tensors));
}

TEST(LoadWeights, ReadsWrappedModels) {
  for (const std::string wrapping : {"module.", "_orig_mod.", "_orig_mod.module."}) {
    Tiny tiny;
    std::map<std::string, at::Tensor> wrapped;
    for (const auto& [name, tensor] : tiny.tensors) wrapped[wrapping + name] = tensor;
    load_weights(tiny.model, source_of(wrapped));
    tiny.model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
      EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
    });
    wrapped["transformer.ln_f.extra"] = at::ones({1});
    EXPECT_THROW(load_weights(tiny.model, source_of(wrapped)), Error);
  }
}

TEST(LoadWeights, ReportsAllMisfitsAndWritesNothing) {
  Tiny tiny;
  tiny.tensors.erase("transformer.ln_f.bias");
  tiny.tensors["transformer.h.0.extra"] = at::ones({1});
  tiny.tensors["transformer.wte.weight"] = at::ones({6, 8});
  tiny.tensors["transformer.wpe.weight"] = at::zeros({4, 8}, at::kLong);
  std::map<std::string, at::Tensor> before;
  tiny.model.each_parameter([&](const std::string& name, nn::Parameter& p) { before[name] = p.value.clone(); });
  try {
    load_weights(tiny.model, source_of(tiny.tensors));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("w/model.safetensors"), HasSubstr("1 missing in the file: transformer.ln_f.bias"),
                      HasSubstr("1 unknown to the model: transformer.h.0.extra"),
                      HasSubstr("transformer.wte.weight [6, 8], the model has [5, 8]"),
                      HasSubstr("1 of another kind of number: transformer.wpe.weight")));
  }
  tiny.model.each_parameter(
      [&](const std::string& name, nn::Parameter& p) { EXPECT_TRUE(p.value.equal(before.at(name))) << name; });
}

// torchvision published its ResNets before batch norms had a batch counter.
TEST(LoadWeights, DoesWithoutBatchNormCounters) {
  const auto model =
      build(load_job("model: {type: resnet18, config: {stem: cifar}}"), {.input_shape = {8, 8, 3}, .num_classes = 3});
  nn::initialize(*model, 1);
  std::map<std::string, at::Tensor> tensors;
  model->each_parameter([&](const std::string& name, nn::Parameter& p) { tensors[name] = at::ones_like(p.value); });
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    if (!name.ends_with("num_batches_tracked")) tensors[name] = at::ones_like(buffer.value);
  });
  load_weights(*model, source_of(tensors));
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    EXPECT_EQ(buffer.value.sum().item<double>() == 0, name.ends_with("num_batches_tracked")) << name;
  });
  tensors.erase("bn1.running_mean");
  EXPECT_THROW(load_weights(*model, source_of(tensors)), Error);
}

TEST(LoadWeights, LeavesOutOtherLastLayerWhenAsked) {
  OtherHead other(7);
  std::map<std::string, at::Tensor> before;
  other.model->each_parameter([&](const std::string& name, nn::Parameter& p) { before[name] = p.value.clone(); });
  EXPECT_EQ(load_weights(*other.model, source_of(other.tensors), OtherClasses::left_out), 7);
  int left = 0;
  other.model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const bool is_last = p.value.size(0) == 3;
    left += is_last ? 1 : 0;
    EXPECT_TRUE(is_last ? p.value.equal(before.at(name)) : (p.value == 0.25).all().item<bool>()) << name;
  });
  EXPECT_EQ(left, 2);
  EXPECT_THROW(load_weights(*other.model, source_of(other.tensors)), Error);
}

TEST(LoadWeights, LeavesOutNothingElse) {
  OtherHead other(7, 5);
  EXPECT_THROW(load_weights(*other.model, source_of(other.tensors), OtherClasses::left_out), Error);
  OtherHead same(3);
  EXPECT_EQ(load_weights(*same.model, source_of(same.tensors), OtherClasses::left_out), 0);
}

}  // namespace
}  // namespace gputrain::models
