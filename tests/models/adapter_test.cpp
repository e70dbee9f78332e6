#include "gputrain/models/adapter.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/runtime.hpp"
#include "models/adapted.hpp"
#include "models/weights.hpp"
#include "ops/compare.hpp"
#include "support/batches.hpp"

namespace gputrain::models::adapter_testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::relative_error;

/// Last parts of the adapted layers' names in the first block.
std::set<std::string> targets(const GptSpec& spec, const std::string& options) {
  const auto model = gpt(spec);
  lora(options)->adapt(*model);
  std::set<std::string> found;
  for (const std::string& name : trained(*model)) {
    constexpr std::string_view kEnd = ".lora_A.weight";
    if (!name.ends_with(kEnd) || name.find(".0.") == std::string::npos) continue;
    const std::string layer = name.substr(0, name.size() - kEnd.size());
    found.insert(layer.substr(layer.find(".0.") + 3));
  }
  return found;
}

TEST(Lora, ChangesNothingBeforeItIsTrained) {
  const auto plain = gpt(small_llama_spec(), kFp64Context), model = gpt(small_llama_spec(), kFp64Context);
  lora("rank: 3")->adapt(*model);
  nn::initialize(*plain, 5);
  nn::initialize(*model, 5);
  EXPECT_TRUE(model->forward(tokens(1)).equal(plain->forward(tokens(1))));
}

TEST(Lora, FindsTargetsByNameExpressionOrKind) {
  using Names = std::set<std::string>;
  const GptSpec llama = small_llama_spec(), gpt2 = small_gpt2_spec();
  const Names all{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                  "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  EXPECT_EQ(targets(llama, ""), all);
  EXPECT_EQ(targets(llama, "target_modules: all-linear"), all);
  EXPECT_EQ(targets(llama, "target_modules: [q_proj, v_proj]"), Names({"self_attn.q_proj", "self_attn.v_proj"}));
  EXPECT_EQ(targets(llama, "target_modules: model.layers.0.mlp.up_proj"), Names({"mlp.up_proj"}));
  EXPECT_EQ(targets(llama, R"(target_modules: '.*\.0\..*(up|down)_proj')"), Names({"mlp.up_proj", "mlp.down_proj"}));
  EXPECT_EQ(targets(gpt2, "target_modules: [attn.c_proj, c_fc]"), Names({"attn.c_proj", "mlp.c_fc"}));
  GptSpec mixture = llama;
  mixture.n_expert = 3;
  EXPECT_EQ(targets(mixture, ""),
            Names({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}));
}

TEST(Lora, RefusesUnknownTargetsWithTheNearest) {
  const GptSpec llama = small_llama_spec();
  EXPECT_THAT(refusal(llama, "target_modules: [q_prj]"),
              AllOf(HasSubstr("model.adapter.target_modules"), HasSubstr("'q_prj'"), HasSubstr("q_proj")));
  EXPECT_THAT(refusal(llama, "target_modules: xyzzy"), HasSubstr("there are down_proj, gate_proj"));
  EXPECT_THAT(refusal(llama, "target_modules: 'x(.*'"), HasSubstr("no regular expression"));
  EXPECT_THAT(refusal(llama, "target_modules: q_proj.*"), HasSubstr("means no dense layer"));  // not a whole name
  EXPECT_THAT(refusal(llama, "target_modules: embed_tokens"), HasSubstr("embedding 'model.embed_tokens'"));
  EXPECT_THAT(refusal(small_llama_spec(/*tied=*/true), "target_modules: lm_head"), HasSubstr("tied"));
}

TEST(Lora, RefusesWrongModulesToSave) {
  EXPECT_THAT(refusal(small_llama_spec(), "modules_to_save: [lm_haed]"), HasSubstr("lm_head"));
  EXPECT_THAT(refusal(small_llama_spec(), "target_modules: [lm_head], modules_to_save: [lm_head]"),
              HasSubstr("trained whole, and a target too"));
  EXPECT_THAT(refusal(small_llama_spec(true), "modules_to_save: [embed_tokens]"), HasSubstr("head too"));
  EXPECT_THAT(refusal(small_llama_spec(true), "modules_to_save: [lm_head]"), HasSubstr("tied"));
}

TEST(Lora, TrainsTheAdapterAndSavedModules) {
  const auto model = gpt(small_llama_spec());
  lora("target_modules: [q_proj], modules_to_save: [lm_head]")->adapt(*model);
  EXPECT_EQ(trained(*model), (std::set<std::string>{"lm_head.weight", "model.layers.0.self_attn.q_proj.lora_A.weight",
                                                    "model.layers.0.self_attn.q_proj.lora_B.weight",
                                                    "model.layers.1.self_attn.q_proj.lora_A.weight",
                                                    "model.layers.1.self_attn.q_proj.lora_B.weight"}));
  EXPECT_EQ(branch_tensors(*model).size(), 4u);
}

class LoraGradients : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, LoraGradients, ::testing::Values("llama", "gpt2"),
                         [](const auto& entry) { return std::string(entry.param); });

TEST_P(LoraGradients, EqualFiniteDifferences) {
  const auto model = adapted(spec_of(GetParam()), "rank: 2, alpha: 3, rslora: true");
  const Batch batch = testing_support::batch_of(tokens(1), tokens(2));
  std::vector<at::Tensor> leaves;
  model->each_parameter([&](const std::string&, nn::Parameter& parameter) {
    if (parameter.trainable) leaves.push_back(parameter.value);
  });
  const auto loss = [&] { return testing_support::loss_of(*model, batch).weighted; };
  EXPECT_LT(testing_support::gradient_error(loss, leaves), 1e-6);
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    EXPECT_EQ(parameter.value.grad().defined(), parameter.trainable) << name;
  });
}

// The loss computes the head in parts.
TEST(LoraHead, HasTheGradientsOfFiniteDifferences) {
  GptSpec spec = small_llama_spec();
  spec.pad_vocab_to = 64;
  for (const int64_t logits_bytes : {1 << 20, 300}) {
    const auto model = adapted(spec, "rank: 2, target_modules: [lm_head]",
                               {.policy = ops::policy_of(ops::Precision::fp64), .logits_bytes = logits_bytes});
    const Batch batch = testing_support::batch_of(tokens(1), tokens(2));
    std::vector<at::Tensor> leaves;
    model->each_parameter([&](const std::string&, nn::Parameter& parameter) {
      if (parameter.trainable) leaves.push_back(parameter.value);
    });
    EXPECT_EQ(leaves.size(), 2u);
    const auto loss = [&] { return testing_support::loss_of(*model, batch).weighted; };
    EXPECT_LT(testing_support::gradient_error(loss, leaves), 1e-6);
    EXPECT_GT(leaves[0].grad().norm().item<double>(), 0);
  }
}

TEST_P(LoraGradients, AreThoseOfWholeBlocksRecomputed) {
  const auto gradients = [&](nn::Recompute how) {
    nn::Context context = kFp64Context;
    context.recompute = how;
    const auto model = adapted(spec_of(GetParam()), "rank: 2, dropout: 0.3", context);
    device::seed_generators(at::kCPU, 9);
    testing_support::loss_of(*model, testing_support::batch_of(tokens(1), tokens(2))).weighted.backward();
    std::map<std::string, at::Tensor> found;
    model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (parameter.trainable) found[name] = parameter.value.grad();
    });
    return found;
  };
  const auto kept = gradients(nn::Recompute::none);
  for (const auto how : {nn::Recompute::block, nn::Recompute::selective}) {
    for (const auto& [name, gradient] : gradients(how)) EXPECT_TRUE(gradient.equal(kept.at(name))) << name;
  }
}

TEST_P(LoraGradients, MergedEqualsUnmerged) {
  const auto model = adapted(spec_of(GetParam()), "rank: 2, alpha: 5, dropout: 0.5");
  model->train(false);
  const at::Tensor before = model->forward(tokens(1)).detach();
  const auto plain = gpt(spec_of(GetParam()), kFp64Context);
  nn::initialize(*plain, 5);
  EXPECT_GT(relative_error(plain->forward(tokens(1)), before), 0.01);
  merge_adapter(*model);
  EXPECT_LT(relative_error(model->forward(tokens(1)), before), 1e-14);
  const auto added = branch_tensors(*model);
  std::map<std::string, at::Tensor> merged;
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (std::ranges::find(added, name) == added.end()) merged[name] = parameter.value.detach();
  });
  load_weights(*plain, source_of(merged));
  EXPECT_LT(relative_error(plain->forward(tokens(1)), before), 1e-14);
}

/// Bytes that a forward pass through one block keeps.
int64_t held_by_forward(nn::Recompute how) {
  GptSpec spec = small_llama_spec();
  spec.n_layer = 1;
  spec.n_embd = 128;
  const auto model = adapted(spec, "rank: 2", {.recompute = how});
  const Batch batch = testing_support::batch_of(tokens(1).repeat({64, 1}), tokens(2).repeat({64, 1}));
  const int64_t before = device::host_allocator_facts().in_use_bytes;
  const at::Tensor loss = testing_support::loss_of(*model, batch).weighted;
  return device::host_allocator_facts().in_use_bytes - before;
}

// No input of the first block needs a gradient, as the embedding is frozen.
TEST(Lora, RecomputesTheFirstBlockToo) {
  device::install_host_allocator();
  const auto kept = static_cast<double>(held_by_forward(nn::Recompute::none));
  EXPECT_LT(static_cast<double>(held_by_forward(nn::Recompute::block)), 0.5 * kept);
}

TEST(Lora, DropsItsInputInTrainingOnly) {
  const auto model = adapted(small_llama_spec(), "rank: 2, dropout: 0.5");
  const at::Tensor inputs = tokens(1);
  EXPECT_FALSE(model->forward(inputs).equal(model->forward(inputs)));
  model->train(false);
  EXPECT_TRUE(model->forward(inputs).equal(model->forward(inputs)));
}

}  // namespace
}  // namespace gputrain::models::adapter_testing
