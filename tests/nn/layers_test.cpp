#include "gputrain/nn/layers.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/nn/transformer.hpp"
#include "gputrain/ops/linear.hpp"
#include "ops/compare.hpp"

namespace gputrain::nn {
namespace {

using testing::ElementsAre;
using testing_support::random_leaf;
using testing_support::relative_error;

const Context kDouble{.policy = ops::policy_of(ops::Precision::fp64)};

std::map<std::string, Parameter*> parameters_of(Module& module) {
  std::map<std::string, Parameter*> found;
  module.each_parameter([&](const std::string& name, Parameter& parameter) { found[name] = &parameter; });
  return found;
}

std::vector<std::string> names_of(Module& module) {
  std::vector<std::string> names;
  module.each_parameter([&](const std::string& name, Parameter&) { names.push_back(name); });
  return names;
}

TEST(LinearLayer, StartsLikeTorchByDefault) {
  Linear layer(kDouble, {.in = 25, .out = 3});
  const auto parameters = parameters_of(layer);
  EXPECT_EQ(parameters.at("weight")->init.kind, Init::Kind::uniform);
  EXPECT_DOUBLE_EQ(parameters.at("weight")->init.scale, 0.2);
  EXPECT_DOUBLE_EQ(parameters.at("bias")->init.scale, 0.2);
  Linear given(kDouble, {.in = 25, .out = 3, .weight_init = Init::normal(0.02)});
  EXPECT_EQ(parameters_of(given).at("bias")->init.kind, Init::Kind::zeros);
}

TEST(LinearLayer, StoresWeightInGivenOrder) {
  const at::Tensor x = random_leaf({2, 4}, 1);
  Linear out_in(kDouble, {.in = 4, .out = 3}), in_out(kDouble, {.in = 4, .out = 3, .order = Linear::Order::in_out});
  EXPECT_EQ(out_in.weight().sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(in_out.weight().sizes(), (at::IntArrayRef{4, 3}));
  initialize(out_in, 1);
  initialize(in_out, 1);
  in_out.weight().detach().copy_(out_in.weight().detach().t());
  EXPECT_LT(relative_error(in_out.forward(x), out_in.forward(x)), 1e-14);
}

/// Output channel o depends only on the inputs of its group, at every `dilation`th pixel.
at::Tensor convolved_by_hand(const at::Tensor& x, const at::Tensor& weight, int64_t dilation) {
  const int64_t in = weight.size(1), kernel = weight.size(2), side = x.size(2) - dilation * (kernel - 1);
  const int64_t per_group = weight.size(0) / (x.size(1) / in);
  std::vector<at::Tensor> channels;
  for (int64_t o = 0; o < weight.size(0); ++o) {
    at::Tensor sum;
    for (int64_t place = 0; place < in * kernel * kernel; ++place) {
      const int64_t i = place / (kernel * kernel), row = place / kernel % kernel, column = place % kernel;
      const at::Tensor seen =
          x.select(1, o / per_group * in + i).narrow(1, row * dilation, side).narrow(2, column * dilation, side);
      const at::Tensor part = seen * weight[o][i][row][column];
      sum = sum.defined() ? sum + part : part;
    }
    channels.push_back(sum);
  }
  return at::stack(channels, 1);
}

TEST(Conv2dLayer, MatchesGroupsAndDilationByHand) {
  for (const auto& [dilation, groups] : {std::pair(1, 4), std::pair(2, 2), std::pair(3, 1)}) {
    for (const auto& [name, bound] :
         {std::pair("fp64", 1e-14), std::pair("fp32", 1e-5), std::pair("bf16", 2e-2), std::pair("fp16", 2e-3)}) {
      Conv2d layer({.policy = ops::policy_of(ops::precision_from_name(name))},
                   {.in = 4, .out = 8, .dilation = dilation, .groups = groups, .bias = false});
      initialize(layer, 1);
      at::Tensor weight = parameters_of(layer).at("weight")->value;
      const at::Tensor exact = weight.detach().to(at::kDouble).set_requires_grad(true);
      EXPECT_DOUBLE_EQ(parameters_of(layer).at("weight")->init.scale, 1 / std::sqrt(4 / groups * 9));
      const at::Tensor x = random_leaf({2, 4, 9, 9}, 1), exact_x = x.detach().clone().set_requires_grad(true);
      const at::Tensor y = layer.forward(x), expected = convolved_by_hand(exact_x, exact, dilation);
      const at::Tensor dy = random_leaf(y.sizes(), 2).detach();
      y.backward(dy.to(y.scalar_type()));
      expected.backward(dy);
      const std::string which = std::to_string(groups) + " groups, " + name;
      EXPECT_LT(relative_error(y, expected), bound) << which;
      EXPECT_LT(relative_error(x.grad(), exact_x.grad()), bound) << which;
      EXPECT_LT(relative_error(weight.grad(), exact.grad()), bound) << which;
    }
  }
}

TEST(BatchNorm2dLayer, CountsBatchesOnlyInTraining) {
  BatchNorm2d norm(kDouble, {.channels = 2});
  initialize(norm, 1);
  at::Tensor tracked;
  norm.each_buffer([&](const std::string& name, Buffer& buffer) {
    if (name == "num_batches_tracked") tracked = buffer.value;
  });
  norm.forward(random_leaf({2, 2, 3, 3}, 1));
  norm.train(false);
  norm.forward(random_leaf({2, 2, 3, 3}, 1));
  EXPECT_EQ(tracked.scalar_type(), at::kLong);
  EXPECT_EQ(tracked.item<int64_t>(), 1);
}

TEST(NormLayer, HasNoBiasAsRmsNorm) {
  Norm layer(kDouble, {.kind = Norm::Kind::layernorm, .channels = 4}), bare(kDouble, {.channels = 4, .bias = false}),
      rms(kDouble, {.kind = Norm::Kind::rmsnorm, .channels = 4});
  EXPECT_THAT(names_of(layer), ElementsAre("weight", "bias"));
  EXPECT_THAT(names_of(bare), ElementsAre("weight"));
  EXPECT_THAT(names_of(rms), ElementsAre("weight"));
  for (auto& [name, parameter] : parameters_of(layer)) EXPECT_EQ(parameter->role, ParameterRole::norm) << name;
}

TEST(EmbeddingLayer, ReturnsRowsInMasterType) {
  Embedding embedding({.policy = ops::policy_of(ops::Precision::bf16)}, {.rows = 5, .channels = 3});
  initialize(embedding, 1);
  const at::Tensor rows = embedding.forward(at::tensor(at::ArrayRef<int64_t>{4, 1}, at::kLong));
  EXPECT_EQ(rows.scalar_type(), at::kFloat);
  EXPECT_TRUE(rows.select(0, 0).equal(embedding.weight().select(0, 4)));
  EXPECT_TRUE(embedding.first_rows(2).equal(embedding.weight().narrow(0, 0, 2)));
}

TEST(DropoutLayer, DoesNothingInEvaluation) {
  Dropout dropout(kDouble, 0.5);
  const at::Tensor x = at::ones({1000});
  EXPECT_LT((dropout.forward(x) != 0).sum().item<int64_t>(), 700);
  dropout.train(false);
  EXPECT_TRUE(dropout.forward(x).is_same(x));
}

SelfAttention::Options small_attention(Naming naming) {
  return {.naming = naming, .channels = 8, .heads = 4, .key_heads = 2, .weight_init = Init::normal(0.5)};
}

TEST(SelfAttention, MatchesFusedAndSeparate) {
  SelfAttention fused(kDouble, small_attention(Naming::gpt2)), separate(kDouble, small_attention(Naming::llama));
  EXPECT_THAT(names_of(fused), ElementsAre("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias"));
  EXPECT_THAT(names_of(separate), ElementsAre("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias",
                                              "v_proj.weight", "v_proj.bias", "o_proj.weight", "o_proj.bias"));
  initialize(fused, 1);
  initialize(separate, 2);
  auto from = parameters_of(fused), to = parameters_of(separate);
  const auto copy = [&](const std::string& name, const std::string& source, int64_t begin, int64_t count) {
    to.at(name + ".weight")
        ->value.detach()
        .copy_(from.at(source + ".weight")->value.detach().narrow(1, begin, count).t());
    to.at(name + ".bias")->value.detach().copy_(from.at(source + ".bias")->value.detach().narrow(0, begin, count));
  };
  copy("q_proj", "c_attn", 0, 8);
  copy("k_proj", "c_attn", 8, 4);
  copy("v_proj", "c_attn", 12, 4);
  copy("o_proj", "c_proj", 0, 8);
  const at::Tensor x = random_leaf({2, 5, 8}, 3);
  EXPECT_LT(relative_error(fused.forward(x, {}), separate.forward(x, {})), 1e-12);
  const Sequence rotary{.rotary = ops::RotaryTable(5, 2, 10000, at::kDouble)};
  EXPECT_LT(relative_error(fused.forward(x, rotary), separate.forward(x, rotary)), 1e-12);
  EXPECT_GT(relative_error(fused.forward(x, rotary), fused.forward(x, {})), 1e-3);
}

TEST(SelfAttention, SeesOnlyThePast) {
  SelfAttention attention(kDouble, small_attention(Naming::gpt2));
  initialize(attention, 1);
  const at::Tensor x = random_leaf({1, 6, 8}, 1).detach(), changed = x.clone();
  changed.narrow(1, 4, 2).add_(1);
  const at::Tensor y = attention.forward(x, {}), z = attention.forward(changed, {});
  EXPECT_LT(relative_error(z.narrow(1, 0, 4), y.narrow(1, 0, 4)), 1e-14);
  EXPECT_GT(relative_error(z.narrow(1, 4, 2), y.narrow(1, 4, 2)), 1e-3);
}

void expect_to_go_on(const SelfAttention::Options& options) {
  SelfAttention attention(kDouble, options);
  initialize(attention, 1);
  const at::Tensor x = random_leaf({2, 6, 8}, 1).detach();
  const ops::RotaryTable table(6, 2, 10000, at::kDouble);
  const at::Tensor whole = attention.forward(x, {.rotary = table});
  KeyValues earlier;
  for (const auto& [begin, count] : {std::pair(0, 3), std::pair(3, 1), std::pair(4, 2)}) {
    const at::Tensor places = at::arange(begin, begin + count).expand({2, count});
    const Sequence next{.rotary = table.at(places), .positions = places, .earlier = &earlier};
    EXPECT_LT(relative_error(attention.forward(x.narrow(1, begin, count), next), whole.narrow(1, begin, count)), 1e-12);
  }
}

TEST(SelfAttention, GoesOnAfterEarlierTokens) {
  SelfAttention::Options options = small_attention(Naming::gpt2);
  expect_to_go_on(options);
  options.window = 2;
  expect_to_go_on(options);
}

TEST(FeedForwardLayer, MatchesFusedAndSeparate) {
  const FeedForward::Options options{.channels = 4, .inner = 6, .gated = true, .bias = false};
  FeedForward::Options separate_options = options;
  separate_options.naming = Naming::llama;
  FeedForward fused(kDouble, options), separate(kDouble, separate_options);
  EXPECT_THAT(names_of(fused), ElementsAre("c_fc.weight", "c_proj.weight"));
  EXPECT_THAT(names_of(separate), ElementsAre("gate_proj.weight", "up_proj.weight", "down_proj.weight"));
  initialize(fused, 1);
  initialize(separate, 2);
  auto from = parameters_of(fused), to = parameters_of(separate);
  const at::Tensor gate_up = from.at("c_fc.weight")->value.detach();
  to.at("gate_proj.weight")->value.detach().copy_(gate_up.narrow(1, 0, 6).t());
  to.at("up_proj.weight")->value.detach().copy_(gate_up.narrow(1, 6, 6).t());
  to.at("down_proj.weight")->value.detach().copy_(from.at("c_proj.weight")->value.detach().t());
  const at::Tensor x = random_leaf({3, 4}, 1);
  EXPECT_LT(relative_error(fused.forward(x), separate.forward(x)), 1e-13);
}

}  // namespace
}  // namespace gputrain::nn
