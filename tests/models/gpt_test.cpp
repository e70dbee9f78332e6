#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/published.hpp"
#include "ops/compare.hpp"
#include "support/batches.hpp"

namespace gputrain::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::relative_error;

const nn::Context kDouble{.policy = ops::policy_of(ops::Precision::fp64)};
const DataFacts kFacts{.input_shape = {8}, .num_classes = 11};

GptSpec tiny() { return {.n_layer = 2, .n_head = 4, .n_embd = 16}; }

GptSpec tiny_llama() {
  return {.n_layer = 1,
          .n_head = 4,
          .n_kv_head = 2,
          .n_embd = 16,
          .position = "rotary",
          .norm = "rmsnorm",
          .activation = "swiglu",
          .tie_embeddings = false};
}

GptSpec windowed() {
  GptSpec spec = tiny_llama();
  spec.n_layer = 2;
  spec.window = 2;
  spec.layer_types = {"sliding_attention", "full_attention"};
  return spec;
}

GptSpec tiny_mixture() {
  GptSpec spec = tiny_llama();
  spec.n_layer = 2;
  spec.n_expert = 40;  // more than the tokens of a batch use
  spec.expert_inner = 8;
  spec.mlp_layer_types = {"dense", "sparse"};
  return spec;
}

GptSpec tiny_neox() {
  GptSpec spec = tiny();
  spec.layout = "gpt_neox";
  spec.position = "rotary";
  spec.partial_rotary_factor = 0.5;
  spec.parallel_residual = true;
  return spec;
}

GptSpec tiny_gemma() {
  GptSpec spec = windowed();
  spec.rope_local_theta = 100;
  spec.qk_norm = true;
  spec.norm = "rmsnorm_1p";
  spec.norms = "both";
  spec.activation = "geglu_tanh";
  spec.scale_embeddings = true;
  return spec;
}

std::map<std::string, std::vector<int64_t>> shapes_of(Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  model.each_parameter(
      [&](const std::string& name, nn::Parameter& parameter) { shapes[name] = parameter.value.sizes().vec(); });
  return shapes;
}

Batch random_batch() {
  const auto draw = [] { return at::randint(11, {3, 8}, at::TensorOptions().dtype(at::kLong)); };
  const at::Tensor inputs = draw();
  return testing_support::batch_of(inputs, draw());
}

TEST(Gpt, HasNamesAndLayoutsOfGpt2) {
  Gpt model(tiny(), {}, kFacts);
  auto shapes = shapes_of(model);
  EXPECT_THAT(shapes.at("transformer.wte.weight"), ElementsAre(11, 16));
  EXPECT_THAT(shapes.at("transformer.wpe.weight"), ElementsAre(8, 16));
  EXPECT_THAT(shapes.at("transformer.h.1.attn.c_attn.weight"), ElementsAre(16, 48));
  EXPECT_THAT(shapes.at("transformer.h.1.mlp.c_fc.weight"), ElementsAre(16, 64));
  EXPECT_THAT(shapes.at("transformer.ln_f.bias"), ElementsAre(16));
  EXPECT_EQ(shapes.count("lm_head.weight"), 0U);
  EXPECT_EQ(published_config(model)["model_type"], "gpt2");
}

TEST(Gpt, HasNamesAndLayoutsOfLlama) {
  Gpt model(tiny_llama(), {}, kFacts);
  auto shapes = shapes_of(model);
  EXPECT_THAT(shapes.at("model.embed_tokens.weight"), ElementsAre(11, 16));
  EXPECT_THAT(shapes.at("model.layers.0.self_attn.k_proj.weight"), ElementsAre(8, 16));
  EXPECT_THAT(shapes.at("model.layers.0.mlp.down_proj.weight"), ElementsAre(16, 64));
  EXPECT_THAT(shapes.at("lm_head.weight"), ElementsAre(11, 16));
  EXPECT_EQ(shapes.size(), 3U + 9U);  // no biases
  EXPECT_EQ(published_config(model)["model_type"], "llama");
}

TEST(Gpt, HasExpertsInItsSparseLayers) {
  for (const auto precision : {ops::Precision::fp32, ops::Precision::bf16}) {
    Gpt model(tiny_mixture(), {.policy = ops::policy_of(precision)}, kFacts);
    nn::initialize(model, 1);
    testing_support::loss_of(model, random_batch()).weighted.backward();
    int used = 0, unused = 0;
    model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      ASSERT_TRUE(parameter.value.grad().defined()) << name;
      if (name.find(".experts.") == std::string::npos) return;
      EXPECT_EQ(name.find("model.layers.1.mlp.experts."), 0U);
      ++(parameter.value.grad().abs().max().item<float>() > 0 ? used : unused);
    });
    EXPECT_EQ(used + unused, 40 * 3);
    EXPECT_GT(used, 0);
    EXPECT_GT(unused, 0);
  }
}

TEST(Gpt, TrainsMixturesWithoutPublishedConfig) {
  for (const std::string position : {"learned", "rotary"}) {
    for (const std::string norm : {"layernorm", "rmsnorm"}) {
      for (const std::string activation : {"gelu", "swiglu"}) {
        GptSpec spec = tiny();
        spec.position = position;
        spec.norm = norm;
        spec.activation = activation;
        spec.n_kv_head = 2;
        Gpt model(spec, kDouble, kFacts);
        nn::initialize(model, 1);
        testing_support::loss_of(model, random_batch()).weighted.backward();
        model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
          EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << name;
        });
        const bool is_llama = position == "rotary" && norm == "rmsnorm" && activation == "swiglu";
        EXPECT_EQ(published_config(model).is_null(), !is_llama) << position << norm << activation;
      }
    }
  }
  for (const std::string norms : {"after", "both"}) {
    GptSpec spec = tiny_gemma();
    spec.norms = norms;
    Gpt model(spec, kDouble, kFacts);
    nn::initialize(model, 1);
    testing_support::loss_of(model, random_batch()).weighted.backward();
    EXPECT_EQ(published_config(model).is_null(), norms == "after");
  }
  GptSpec parallel = tiny();
  parallel.parallel_residual = true;
  EXPECT_TRUE(published_config(Gpt(parallel, {}, kFacts)).is_null());
  GptSpec unbiased = tiny();
  unbiased.bias = false;
  EXPECT_TRUE(published_config(Gpt(unbiased, {}, kFacts)).is_null());
}

/// Loss, gradients and evaluation must agree when both have the same weights.
void expect_same_results(Gpt& model, Gpt& reference) {
  nn::initialize(reference, 1);
  nn::initialize(model, 1);
  const Batch batch = random_batch();
  EXPECT_LT(relative_error(model.forward(batch.input()), reference.forward(batch.input())), 1e-13);
  const ops::Loss expected = testing_support::loss_of(reference, batch, 0.1),
                  loss = testing_support::loss_of(model, batch, 0.1);
  EXPECT_LT(relative_error(loss.weighted, expected.weighted), 1e-13);
  EXPECT_LT(relative_error(loss.sum, expected.sum), 1e-13);
  expected.weighted.backward();
  loss.weighted.backward();
  std::map<std::string, at::Tensor> gradients;
  reference.each_parameter([&](const std::string& name, nn::Parameter& p) { gradients[name] = p.value.grad(); });
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    EXPECT_LT(relative_error(p.value.grad(), gradients.at(name)), 1e-12) << name;
  });
  const auto found = testing_support::evaluate(model, batch).sums,
             known = testing_support::evaluate(reference, batch).sums;
  EXPECT_NEAR(found.at("loss") / known.at("loss"), 1, 1e-13);
  EXPECT_EQ(found.at("top1"), known.at("top1"));
  EXPECT_EQ(found.at("top5"), known.at("top5"));
}

TEST(Gpt, IgnoresPaddedLogits) {
  GptSpec padded_spec = tiny();
  padded_spec.pad_vocab_to = 64;
  Gpt plain(tiny(), kDouble, kFacts), padded(padded_spec, kDouble, kFacts);
  EXPECT_EQ(padded.forward(random_batch().input()).size(-1), 11);
  expect_same_results(padded, plain);
}

TEST(Gpt, MatchesWithLogitsInParts) {
  nn::Context in_parts = kDouble;
  in_parts.logits_bytes = 5 * 11 * 8;  // 5 of the batch's 24 rows
  for (const bool tied : {true, false}) {
    GptSpec spec = tiny();
    spec.tie_embeddings = tied;
    Gpt whole(spec, kDouble, kFacts), parts(spec, in_parts, kFacts);
    expect_same_results(parts, whole);
  }
}

TEST(Gpt, StartsAtChanceWithScaledResiduals) {
  GptSpec spec = tiny();
  spec.n_embd = 64;
  Gpt model(spec, {}, kFacts);
  nn::initialize(model, 1);
  EXPECT_NEAR(testing_support::loss_of(model, random_batch()).weighted.item<double>() / 24, std::log(11.0), 0.3);
  std::map<std::string, double> deviation;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.value.dim() == 2) deviation[name] = p.value.std().item<double>();
  });
  EXPECT_NEAR(deviation.at("transformer.h.0.attn.c_attn.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation.at("transformer.h.0.attn.c_proj.weight"), 0.01, 0.0006);  // two layers: 0.02 / sqrt(4)
  EXPECT_NEAR(deviation.at("transformer.h.1.mlp.c_proj.weight"), 0.01, 0.0006);
}

TEST(Gpt, LearnsFromPackedTextsAsFromSingleOnes) {
  const at::Tensor tokens = at::randint(11, {1, 8}, at::kLong), targets = at::randint(11, {1, 8}, at::kLong);
  Batch packed = testing_support::batch_of(tokens, targets);
  packed.fields.push_back({kPositions, at::tensor({0, 1, 2, 0, 0, 1, 2, 3}, at::kLong).unsqueeze(0)});
  for (const GptSpec& spec : {tiny(), tiny_llama(), windowed(), tiny_gemma(), tiny_neox()}) {
    Gpt together(spec, kDouble, kFacts), apart(spec, kDouble, kFacts);
    nn::initialize(together, 1);
    nn::initialize(apart, 1);
    const ops::Loss loss = testing_support::loss_of(together, packed);
    loss.weighted.backward();
    double sum = 0;
    for (const auto& [begin, count] : {std::pair(0, 3), std::pair(3, 1), std::pair(4, 4)}) {
      const Batch one = testing_support::batch_of(tokens.narrow(1, begin, count), targets.narrow(1, begin, count));
      const ops::Loss part = testing_support::loss_of(apart, one);
      part.weighted.backward();
      sum += part.sum.item<double>();
    }
    EXPECT_NEAR(loss.sum.item<double>(), sum, 1e-9 * sum);
    std::map<std::string, at::Tensor> expected;
    apart.each_parameter([&](const std::string& name, nn::Parameter& p) { expected[name] = p.value.grad(); });
    together.each_parameter([&](const std::string& name, nn::Parameter& p) {
      EXPECT_LT(relative_error(p.value.grad(), expected.at(name)), 1e-9) << name;
    });
  }
}

TEST(Gpt, DropsOnlyInTraining) {
  GptSpec spec = tiny();
  spec.dropout = 0.5;
  Gpt model(spec, {}, kFacts);
  nn::initialize(model, 1);
  const at::Tensor tokens = random_batch().input();
  EXPECT_FALSE(model.forward(tokens).equal(model.forward(tokens)));
  model.train(false);
  EXPECT_TRUE(model.forward(tokens).equal(model.forward(tokens)));
}

TEST(Gpt, MatchesOperationCountByHand) {
  GptSpec spec;  // GPT-2 124M: 85M weights in blocks, 38.6M in the head
  spec.block_size = 1024;
  const Gpt model(spec, {}, {.input_shape = {1024}, .num_classes = 50257});
  const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  const double expected = 1024 * (6 * weights + 12.0 * 12 * 768 * 1024);
  EXPECT_NEAR(model.flops_per_sample() / expected, 1, 1e-9);
}

TEST(Gpt, CountsOnlyKeysInsideWindows) {
  GptSpec spec = tiny();
  const double all = Gpt(spec, {}, kFacts).flops_per_sample();
  spec.window = 3;
  spec.layer_types = {"full_attention", "sliding_attention"};
  EXPECT_EQ(all - Gpt(spec, {}, kFacts).flops_per_sample(), 12 * 16 * 8 * (8 - 3));
}

TEST(Gpt, CountsOnlyExpertsThatATokenUses) {
  GptSpec spec = tiny_mixture();
  const double sparse = Gpt(spec, {}, kFacts).flops_per_sample();
  spec.n_expert = 0;
  spec.mlp_layer_types = {};
  const double dense = Gpt(spec, {}, kFacts).flops_per_sample();
  EXPECT_EQ(dense - sparse, 6 * 8 * (3 * 16 * 64 - (40 * 16 + 2 * 3 * 16 * 8)));
}

/// The empty end of a packed row is a text of its own, of which nothing is learned.
TEST(Gpt, LeavesPaddingOutOfLossesAndCountsOfRouters) {
  GptSpec spec = tiny_mixture();
  spec.n_expert = 6;
  spec.router_z_loss_coef = 0.01;
  Gpt model(spec, kDouble, kFacts);
  nn::initialize(model, 3);
  model.train(true);
  const at::Tensor tokens = at::tensor({1, 2, 3, 4, 5, 0, 0, 0}, at::kLong).view({1, 8});
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 1, 0, 1, 2}, at::kLong).view({1, 8});
  const int64_t no = kIgnoreIndex;
  const at::Tensor targets = at::tensor({int64_t{2}, int64_t{3}, no, int64_t{5}, no, no, no, no}).view({1, 8});
  const Batch packed{
      .fields = {{kTokens, tokens}, {kTarget, targets}, {kPositions, positions}}, .samples = 1, .weight = 3};
  const auto routed = [&] { return model.take_expert_counts().sum().item<double>(); };
  const at::Tensor with_padding = model.last_layer(packed).extra_loss;
  EXPECT_EQ(routed(), 5 * spec.experts_per_token);
  EXPECT_EQ(routed(), 0);
  const auto cut = [&](const at::Tensor& x) { return x.narrow(1, 0, 5).contiguous(); };
  const Batch without{.fields = {{kTokens, cut(tokens)}, {kTarget, cut(targets)}, {kPositions, cut(positions)}},
                      .samples = 1,
                      .weight = 3};
  EXPECT_NEAR(with_padding.item<double>(), model.last_layer(without).extra_loss.item<double>(), 1e-12);
  model.train(false);
  routed();
  model.last_layer(packed);
  EXPECT_EQ(routed(), 0) << "an evaluation counts";
}

void expect_refused(const GptSpec& spec, const DataFacts& facts, const std::string& key, const std::string& hint) {
  try {
    Gpt(spec, {}, facts);
    FAIL() << key << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.parts().where, key);
    EXPECT_THAT(error.parts().hint, HasSubstr(hint));
  }
}

TEST(Gpt, RefusesDataThatDoesNotFit) {
  expect_refused({.block_size = 4}, kFacts, "model.config.block_size", "block_size: 8");
  expect_refused({.vocab_size = 10}, kFacts, "model.config.vocab_size", "vocab_size: 11");
  expect_refused({.pad_vocab_to = 10}, kFacts, "model.config.pad_vocab_to", "pad_vocab_to: 64");
  expect_refused({}, {.input_shape = {3, 32, 32}, .num_classes = 10}, "model.type", "convnet");
  expect_refused({}, {.input_shape = {8}}, "model.config.vocab_size", "set vocab_size");
}

TEST(Gpt, ReportsHeadsThatDoNotDivideChannels) {
  const auto issues = [](const GptSpec& spec) {
    config::SpecIssues found;
    config::schema_of<GptSpec>().check()(&spec, found);
    std::string text;
    for (const auto& issue : found.all()) text += issue.key + ": " + issue.hint + "; ";
    return text;
  };
  EXPECT_EQ(issues({.n_head = 5, .n_embd = 768}), "n_embd: for instance n_embd: 770; ");
  EXPECT_EQ(issues({.n_head = 12, .n_kv_head = 5}), "n_kv_head: for instance n_head: 15; ");
  EXPECT_THAT(issues({.n_head = 4, .n_embd = 12, .position = "rotary"}), HasSubstr("n_embd: 16, or position"));
  EXPECT_EQ(issues({}), "");
  EXPECT_EQ(issues({.layer_types = {"sliding_attention"}}), "layer_types: for instance window: 4096; ");
  EXPECT_THAT(issues({.position = "rotary", .rope_theta = 1, .rope_scaling = {.type = "yarn"}}),
              HasSubstr("rope_theta: 10000"));
  EXPECT_THAT(issues({.window = 4, .layer_types = {"full_attention"}}), HasSubstr("layer_types: leave out window"));
  EXPECT_THAT(issues({.n_layer = 1, .window = 4, .layer_types = {"full_attention", "sliding_attention"}}),
              HasSubstr("repeated"));
  EXPECT_THAT(issues({.n_expert = 4}), HasSubstr("n_expert: position: rotary"));
  EXPECT_THAT(issues({.n_expert = 4, .experts_per_token = 5}), HasSubstr("experts_per_token: at most 4"));
  EXPECT_THAT(issues({.mlp_layer_types = {"sparse"}}), HasSubstr("mlp_layer_types: for instance n_expert: 8"));
  EXPECT_THAT(issues({.n_expert = 4, .mlp_layer_types = {"dense"}}), HasSubstr("mlp_layer_types: leave out n_expert"));
  EXPECT_THAT(issues({.layout = "llama"}), HasSubstr("layout: position: rotary"));
  EXPECT_THAT(issues({.layout = "phi3", .position = "rotary"}), HasSubstr("layout: activation: swiglu"));
  EXPECT_THAT(issues({.position = "rotary", .partial_rotary_factor = 0.02}), HasSubstr("partial_rotary_factor: for"));
  EXPECT_THAT(issues({.partial_rotary_factor = 0.5}), HasSubstr("partial_rotary_factor: position: rotary"));
  EXPECT_THAT(issues({.n_kv_head = 6, .layout = "gpt_neox", .position = "rotary"}),
              HasSubstr("n_kv_head: leave it out"));
  EXPECT_THAT(issues({.layout = "gpt_neox", .position = "rotary", .activation = "swiglu"}),
              HasSubstr("layout: activation: gelu"));
  EXPECT_THAT(issues({.qk_norm_across_heads = true}), HasSubstr("qk_norm_across_heads: qk_norm: true"));
  EXPECT_EQ(issues({.norms = "both"}), "norms: position: rotary, norm: rmsnorm, activation: swiglu; ");
  EXPECT_THAT(issues({.position = "rotary", .rope_local_theta = 100}), HasSubstr("rope_local_theta: leave it out"));
}

}  // namespace
}  // namespace gputrain::models
