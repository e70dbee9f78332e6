// DoRA, starts from the base's weights, sizes of single layers, and noise on embeddings.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/layers.hpp"
#include "models/adapted.hpp"
#include "models/weights.hpp"
#include "ops/compare.hpp"
#include "support/batches.hpp"

namespace gputrain::models::adapter_kinds_testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::relative_error;

const std::string kQuery = "base_model.model.model.layers.0.self_attn.q_proj.";

std::unique_ptr<Gpt> base(const GptSpec& spec) {
  auto model = gpt(spec, kFp64Context);
  nn::initialize(*model, 5);
  return model;
}

struct Kind {
  const char *model, *options;
};

class AdapterKinds : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(, AdapterKinds,
                         ::testing::Values(Kind{"llama", "rank: 2, alpha: 3, dora: true"},
                                           Kind{"gpt2", "rank: 2, alpha: 3, dora: true, rslora: true"},
                                           Kind{"llama", "rank: 2, alpha: 3, init: pissa"},
                                           Kind{"gpt2", "rank: 2, alpha: 3, init: olora"},
                                           Kind{"llama", "rank: 2, alpha: 3, init: pissa_niter_16, dora: true"},
                                           Kind{"llama", "rank: 2, init: gaussian"},
                                           Kind{"gpt2", "rank: 2, groups: [{match: c_fc, rank: 3, alpha: 1}]"}),
                         [](const auto& entry) { return "Number" + std::to_string(entry.index); });

TEST_P(AdapterKinds, ChangesNothingBeforeItIsTrained) {
  const auto model = gpt(spec_of(GetParam().model), kFp64Context);
  lora(GetParam().options)->adapt(*model);
  nn::initialize(*model, 5);
  fit_branches(*model);
  const at::Tensor plain = base(spec_of(GetParam().model))->forward(tokens(1));
  EXPECT_LT(relative_error(model->forward(tokens(1)), plain), 1e-13);
  find_starts(*model);
  start_branches(*model);
  EXPECT_LT(relative_error(model->forward(tokens(1)), plain), 1e-13);
}

TEST_P(AdapterKinds, HasTheGradientsOfFiniteDifferences) {
  // The length of rows is a constant for DoRA's gradient: only magnitudes can be compared.
  const std::string options = GetParam().options;
  const bool has_lengths = options.find("dora") != std::string::npos;
  for (const char* more : {"", ", dropout: 0.4"}) {
    const auto model = adapted(spec_of(GetParam().model), options + more);
    const Batch batch = testing_support::batch_of(tokens(1), tokens(2));
    std::vector<at::Tensor> leaves;
    model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (parameter.trainable && (!has_lengths || name.ends_with("lora_magnitude_vector")))
        leaves.push_back(parameter.value);
    });
    ASSERT_FALSE(leaves.empty());
    const auto loss = [&] {
      device::seed_generators(at::kCPU, 9);  // the same dropout each time
      return testing_support::loss_of(*model, batch).weighted;
    };
    EXPECT_LT(testing_support::gradient_error(loss, leaves), 1e-6) << more;
  }
}

TEST_P(AdapterKinds, MergedEqualsUnmerged) {
  const auto model = adapted(spec_of(GetParam().model), GetParam().options);
  model->train(false);
  const at::Tensor before = model->forward(tokens(1)).detach();
  EXPECT_GT(relative_error(base(spec_of(GetParam().model))->forward(tokens(1)), before), 0.01);
  merge_adapter(*model);
  EXPECT_LT(relative_error(model->forward(tokens(1)), before), 1e-12);
  merge_adapter(*model);  // there is nothing left to merge
  EXPECT_LT(relative_error(model->forward(tokens(1)), before), 1e-12);
}

TEST_P(AdapterKinds, IsReadBack) {
  const auto from = adapted(spec_of(GetParam().model), GetParam().options), to = base(spec_of(GetParam().model));
  const auto adapter = lora(GetParam().options);
  adapter->adapt(*to);
  nn::initialize(*to, 5);
  load_adapter(*to, source_of(copies(*from)));
  EXPECT_LT(relative_error(to->forward(tokens(1)), from->forward(tokens(1))), 1e-14);
  EXPECT_NO_THROW(adapter->check_config(*to, adapter->config_of(*from, ""), "there"));
}

at::Tensor weight_of(Model& model, const std::string& layer) {
  at::Tensor weight;
  model.each_module([&](const std::string& name, nn::Module& module) {
    // A branch has the name of its layer.
    if (auto* const dense = dynamic_cast<nn::Linear*>(&module); dense != nullptr && name == layer)
      weight = dense->matrix();
  });
  return weight;
}

TEST(Dora, ScalesEachRowToItsMagnitude) {
  const auto model = adapted(small_llama_spec(), "rank: 2, alpha: 5, target_modules: q_proj, dora: true");
  const auto tensors = copies(*model);
  const at::Tensor sum =
      at::add(weight_of(*model, "model.layers.0.self_attn.q_proj"),
              at::mm(tensors.at(kQuery + "lora_B.weight"), tensors.at(kQuery + "lora_A.weight")), /*alpha=*/2.5);
  const at::Tensor lengths = at::linalg_vector_norm(sum, 2, at::IntArrayRef{1});
  const at::Tensor magnitude = tensors.at(kQuery + "lora_magnitude_vector");
  EXPECT_GT(relative_error(lengths, magnitude), 0.01);
  merge_adapter(*model);
  const at::Tensor merged = weight_of(*model, "model.layers.0.self_attn.q_proj");
  EXPECT_LT(relative_error(merged, sum * (magnitude / lengths).unsqueeze(1)), 1e-13);
}

TEST(Dora, IsRefusedWhereTheJobHasNone) {
  const auto from = adapted(small_llama_spec(), "rank: 2, dora: true"), to = adapted(small_llama_spec(), "rank: 2");
  const auto config = lora("rank: 2, dora: true")->config_of(*from, "");
  EXPECT_EQ(config["use_dora"], true);
  try {
    lora("rank: 2")->check_config(*to, config, "there");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("has DoRA's magnitudes"), HasSubstr("there")));
  }
}

TEST(AdapterStart, IsTheLargestPartOfTheWeight) {
  const auto model = gpt(small_llama_spec(), kFp64Context);
  lora("rank: 3, alpha: 6, target_modules: q_proj, init: pissa")->adapt(*model);
  nn::initialize(*model, 5);
  find_starts(*model);
  start_branches(*model);
  std::map<std::string, at::Tensor> ours;
  model->each_parameter([&](const std::string& name, nn::Parameter& one) { ours[name] = one.value.detach(); });
  const std::string layer = "model.layers.0.self_attn.q_proj";
  const auto [u, s, vh] = at::linalg_svd(weight_of(*model, layer), /*full_matrices=*/false);
  const at::Tensor largest = at::mm(u.narrow(1, 0, 3) * s.narrow(0, 0, 3), vh.narrow(0, 0, 3));
  EXPECT_LT(relative_error(at::mm(ours[layer + ".lora_B.weight"], ours[layer + ".lora_A.weight"]) * 2, largest), 1e-13);
}

// So that it is plain LoRA beside the weights as they were published.
TEST(AdapterStart, StandsInFilesBesideTheTrainedValues) {
  const std::string options = "rank: 2, alpha: 3, init: pissa, groups: [{match: q_proj, rank: 3}]";
  const auto model = adapted(small_llama_spec(), options);
  const auto tensors = copies(*model);
  EXPECT_THAT(tensors.at(kQuery + "lora_A.weight").sizes(), ElementsAre(6, 16));
  EXPECT_THAT(tensors.at(kQuery + "lora_B.weight").sizes(), ElementsAre(16, 6));
  const auto config = lora(options)->config_of(*model, "");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["rank_pattern"], nlohmann::json({{"q_proj", 6}}));
  EXPECT_EQ(
      lora("rank: 2, alpha: 3, init: olora, rslora: true")
          ->config_of(*adapted(small_llama_spec(), "rank: 2, alpha: 3, init: olora, rslora: true"), "")["lora_alpha"],
      3 * std::sqrt(2.0));
}

TEST(AdapterStart, IsRefusedBeyondTheRankOfTheWeight) {
  EXPECT_THAT(refusal(small_llama_spec(), "rank: 9, init: pissa"),
              AllOf(HasSubstr("k_proj' has rank 8 at most"), HasSubstr("model.adapter.init")));
  EXPECT_EQ(refusal(small_llama_spec(), "rank: 9"), "accepted");
}

TEST(AdapterGroups, RefuseWhatMeansNothingOrTwoThings) {
  EXPECT_THAT(refusal(small_llama_spec(), "groups: [{match: q_prj, rank: 4}]"),
              AllOf(HasSubstr("'q_prj' means none of the layers"), HasSubstr("model.adapter.groups")));
  EXPECT_THAT(refusal(small_llama_spec(), "groups: [{match: q_proj, rank: 4}, {match: 'layers.*', rank: 5}]"),
              HasSubstr("q_proj' has two sizes: rank 4 and 5"));
  EXPECT_THAT(refusal(small_llama_spec(), "groups: [{match: 'q_proj(', rank: 4}]"), HasSubstr("no regular expression"));
  EXPECT_EQ(refusal(small_llama_spec(), "groups: [{match: q_proj, rank: 4}, {match: 'layers.*', alpha: 5}]"),
            "accepted");
}

TEST(AdapterGroups, NameSingleLayersWhereTheyDiffer) {
  const std::string options = "rank: 2, groups: [{match: 'layers.1.*q_proj', rank: 4, alpha: 2.5}]";
  const auto model = adapted(small_llama_spec(), options);
  const auto config = lora(options)->config_of(*model, "");
  EXPECT_EQ(config["rank_pattern"], nlohmann::json({{"model.layers.1.self_attn.q_proj", 4}}));
  EXPECT_EQ(config["alpha_pattern"], nlohmann::json({{"model.layers.1.self_attn.q_proj", 2.5}}));
  EXPECT_THAT(copies(*model).at("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight").sizes(),
              ElementsAre(4, 16));
}

TEST(EmbeddingNoise, IsSmallAndInTrainingOnly) {
  GptSpec spec = small_llama_spec();
  const auto plain = base(spec);
  spec.neftune_alpha = 5;
  const auto noisy = base(spec);
  const at::Tensor without = plain->forward(tokens(1));
  const double changed = relative_error(noisy->forward(tokens(1)), without);
  EXPECT_GT(changed, 1e-3);
  EXPECT_FALSE(noisy->forward(tokens(1)).equal(noisy->forward(tokens(2))));
  noisy->train(false);
  EXPECT_TRUE(noisy->forward(tokens(1)).equal(without));
}

}  // namespace
}  // namespace gputrain::models::adapter_kinds_testing
