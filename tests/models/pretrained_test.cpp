#include "gputrain/models/pretrained.hpp"

#include <map>
#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"
#include "models/weights.hpp"

namespace gputrain::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

const json kLlama{
    {"model_type", "llama"},         {"hidden_size", 64},
    {"intermediate_size", 96},       {"num_hidden_layers", 2},
    {"num_attention_heads", 4},      {"num_key_value_heads", 2},
    {"max_position_embeddings", 32}, {"vocab_size", 11},
    {"rms_norm_eps", 1e-6},          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}};

std::string refusal(const json& config) {
  try {
    published_model(config, "w/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.parts().where.substr(0, 13), "w/config.json");
    return error.what();
  }
  ADD_FAILURE() << "accepted " << config;
  return {};
}

TEST(PublishedModel, ReadsSizesOfGpt2WithDefaults) {
  const auto published = published_model(json{{"model_type", "gpt2"}, {"n_layer", 24}, {"n_inner", nullptr}}, "");
  EXPECT_EQ(published.type, "gpt");
  EXPECT_THAT(published.options,
              AllOf(Contains(Pair("n_layer", "24")), Contains(Pair("n_inner", "3072")),
                    Contains(Pair("activation", "gelu_tanh")), Contains(Pair("tie_embeddings", "true"))));
}

TEST(PublishedModel, ReadsSizesOfLlamaInBothFormats) {
  EXPECT_THAT(published_model(kLlama, "").options,
              AllOf(Contains(Pair("n_kv_head", "2")), Contains(Pair("rope_theta", "500000.0")),
                    Contains(Pair("norm", "rmsnorm")), Contains(Pair("tie_embeddings", "false"))));
  json old = kLlama;
  old.erase("rope_parameters");
  old["rope_theta"] = 250.0;
  EXPECT_THAT(published_model(old, "").options, Contains(Pair("rope_theta", "250.0")));
}

TEST(PublishedModel, ReadsKinOfLlama) {
  const auto options_of = [](const char* type, const json& more) {
    json config = kLlama;
    config["model_type"] = type;
    config.update(more);
    return published_model(config, "").options;
  };
  EXPECT_THAT(options_of("qwen2", {{"sliding_window", 16}}),
              AllOf(Contains(Pair("qkv_bias", "true")), Contains(Pair("bias", "false")), Not(Contains(Key("window")))));
  EXPECT_THAT(
      options_of("qwen2", {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 1}}),
      AllOf(Contains(Pair("window", "16")), Contains(Pair("layer_types", "[full_attention, sliding_attention]"))));
  EXPECT_THAT(options_of("qwen3", {{"head_dim", 24}}),
              AllOf(Contains(Pair("qk_norm", "true")), Contains(Pair("head_dim", "24"))));
  EXPECT_THAT(options_of("olmo2", json::object()),
              AllOf(Contains(Pair("qk_norm_across_heads", "true")), Contains(Pair("norms", "after"))));
  EXPECT_THAT(
      options_of("mistral", {{"sliding_window", 16}}),
      AllOf(Contains(Pair("window", "16")), Contains(Pair("block_size", "32")), Not(Contains(Key("layer_types")))));
  EXPECT_THAT(options_of("qwen2", {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 0}}),
              AllOf(Contains(Pair("window", "16")), Not(Contains(Key("layer_types")))));
  EXPECT_THAT(options_of("mistral", json::object()), Contains(Pair("window", "4096")));  // as in transformers
  EXPECT_THAT(options_of("mistral", {{"sliding_window", nullptr}}), Not(Contains(Key("window"))));
}

TEST(PublishedModel, ReadsWhatItWritesOfWindows) {
  for (const std::string& windows :
       {std::string("window: 3"), std::string("window: 3, layer_types: [sliding_attention, full_attention]")}) {
    const std::string job =
        "model: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 16, position: rotary, norm: rmsnorm, activation: "
        "swiglu, bias: false, qk_norm: true, " +
        windows + "}}\n";
    const auto model = build(load_job(job), {.input_shape = {8}, .num_classes = 11});
    const json config = published_config(*model);
    EXPECT_EQ(config["model_type"], "qwen3");
    const auto again = build(load_job("model: {type: gpt}\n", settings_of(published_model(config, ""),
                                                                          load_job("model: {type: gpt}\n"), "model")),
                             {.input_shape = {8}, .num_classes = 11});
    EXPECT_EQ(published_config(*again), config);
  }
}

TEST(PublishedModel, ReadsPythia) {
  json pythia{{"model_type", "gpt_neox"}, {"hidden_size", 64},        {"intermediate_size", 96},
              {"num_hidden_layers", 2},   {"num_attention_heads", 4}, {"max_position_embeddings", 32},
              {"vocab_size", 11},         {"rotary_pct", 0.5},        {"rotary_emb_base", 100.0}};
  EXPECT_THAT(published_model(pythia, "").options,
              AllOf(Contains(Pair("layout", "gpt_neox")), Contains(Pair("parallel_residual", "true")),
                    Contains(Pair("partial_rotary_factor", "0.5")), Contains(Pair("rope_theta", "100.0")),
                    Contains(Pair("activation", "gelu")), Contains(Pair("tie_embeddings", "false"))));
  const auto lines = settings_of(published_model(pythia, ""), load_job("model: {type: gpt}\n"), "model");
  const auto model = build(load_job("model: {type: gpt}\n", lines), {.input_shape = {4}, .num_classes = 11});
  const auto family = family_of(*model);
  EXPECT_EQ(family->parameter_of(*model, "layers.0.mlp.dense_4h_to_h.bias"),
            "gpt_neox.layers.0.mlp.dense_4h_to_h.bias");
  EXPECT_EQ(family->parameter_of(*model, "gpt_neox.layers.0.attention.bias"), "");
  EXPECT_EQ(family->parameter_of(*model, "lm_head.weight"), "embed_out.weight");
  pythia["attention_bias"] = false;
  EXPECT_THAT(refusal(pythia), HasSubstr("attention_bias"));
}

TEST(PublishedModel, ReadsPhi3WithoutLongrope) {
  json phi = kLlama;
  phi["model_type"] = "phi3";
  phi["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 250.0}, {"partial_rotary_factor", 0.75}};
  EXPECT_THAT(published_model(phi, "").options,
              AllOf(Contains(Pair("layout", "phi3")), Contains(Pair("partial_rotary_factor", "0.75")),
                    Contains(Pair("rope_theta", "250.0")), Not(Contains(Key("window")))));
  for (const char* type : {"longrope", "su", "yarn"}) {  // transformers computes the last two as longrope
    phi["rope_scaling"] = {{"type", type}, {"factor", 4.0}};
    EXPECT_THAT(refusal(phi), HasSubstr(std::string("'") + type + "' is not supported")) << type;
  }
}

TEST(PublishedModel, RefusesUnsupportedAndBrokenConfigs) {
  const auto with = [](json config, const char* key, const json& value) {
    config[key] = value;
    return refusal(config);
  };
  EXPECT_THAT(with(kLlama, "rope_scaling", {{"rope_type", "llama3"}}), HasSubstr("rope_scaling: 'factor' is missing"));
  EXPECT_THAT(with(kLlama, "rope_scaling", {{"type", "yarn"}}), HasSubstr("rope_scaling: 'factor' is missing"));
  EXPECT_THAT(with(kLlama, "rope_scaling", {{"type", "dynamic"}, {"factor", 4}}),
              HasSubstr("take it out of config.json"));
  EXPECT_THAT(with(kLlama, "rope_parameters", {{"rope_type", "longrope"}}), HasSubstr("longrope"));
  EXPECT_THAT(with(kLlama, "rope_parameters", {{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(with(kLlama, "quantization_config", {{"quant_method", "fp8"}}), HasSubstr("quantised"));
  EXPECT_THAT(with(kLlama, "attention_bias", true), HasSubstr("'attention_bias: true' without 'mlp_bias'"));
  EXPECT_THAT(with(kLlama, "num_attention_heads", 3), HasSubstr("'head_dim' is missing"));
  json qwen = kLlama;
  qwen["model_type"] = "qwen3";
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(with(qwen, "layer_types", {"sliding_attention", "chunked_attention"}), HasSubstr("chunked_attention"));
  EXPECT_THAT(with(qwen, "layer_types", {"sliding_attention"}), HasSubstr("no list of 2 layers"));
  EXPECT_THAT(with(qwen, "num_hidden_layers", 1000000000000), HasSubstr("'num_hidden_layers' is above"));
  EXPECT_THAT(with(kLlama, "use_sliding_window", true), HasSubstr("use_sliding_window"));
  EXPECT_THAT(with(qwen, "attention_bias", true), HasSubstr("'attention_bias: true' is not supported in this family"));
  EXPECT_THAT(with(kLlama, "hidden_act", "gelu"), HasSubstr("hidden_act"));
  EXPECT_THAT(with(kLlama, "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(with(kLlama, "hidden_size", "wide"), HasSubstr("hidden_size"));
  EXPECT_THAT(with(kLlama, "num_hidden_layers", -1), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with(kLlama, "num_hidden_layers", nullptr), HasSubstr("missing"));
  EXPECT_THAT(with({{"model_type", "gpt2"}}, "scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by"));
  EXPECT_THAT(with({{"model_type", "gpt2"}}, "activation_function", "mish"), HasSubstr("mish"));
  EXPECT_THAT(refusal({{"model_type", "t5"}}), HasSubstr("t5"));
  EXPECT_THAT(refusal(json::array()), HasSubstr("JSON object"));
}

const json kGemma{{"model_type", "gemma3_text"},   {"hidden_size", 64},
                  {"intermediate_size", 96},       {"num_hidden_layers", 8},
                  {"max_position_embeddings", 32}, {"vocab_size", 11},
                  {"sliding_window", 16},          {"rope_theta", 1000.0},
                  {"rope_local_base_freq", 100.0}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};

TEST(PublishedModel, ReadsGemmaInBothFormats) {
  const auto read = AllOf(Contains(Pair("rope_theta", "1000.0")), Contains(Pair("rope_local_theta", "100.0")),
                          Contains(Pair("rope_scaling.factor", "8.0")), Contains(Pair("n_head", "8")),
                          Contains(Pair("head_dim", "256")), Contains(Pair("tie_embeddings", "true")));
  EXPECT_THAT(published_model(kGemma, "").options,
              AllOf(read, Contains(Pair("layer_types",
                                        "[sliding_attention, sliding_attention, sliding_attention, sliding_attention, "
                                        "sliding_attention, full_attention]"))));
  json nested = kGemma;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) nested.erase(key);
  nested["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1000.0}}},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 100.0}}}};
  nested["sliding_window_pattern"] = 2;
  EXPECT_THAT(published_model(nested, "").options,
              AllOf(read, Contains(Pair("layer_types", "[sliding_attention, full_attention]"))));
  const json with_images{{"model_type", "gemma3"}, {"text_config", nested}, {"tie_word_embeddings", true}};
  EXPECT_THAT(published_model(with_images, "").options, read);
  json without = kGemma;
  without["layer_types"] = std::vector<std::string>(8, "full_attention");
  EXPECT_THAT(published_model(without, "").options,
              AllOf(Not(Contains(Key("window"))), Not(Contains(Key("rope_local_theta")))));
  nested["rope_parameters"].erase("sliding_attention");
  EXPECT_THAT(refusal(nested), HasSubstr("'rope_parameters' has no 'sliding_attention'"));
}

TEST(PublishedModel, RefusesWhatGemma3CannotCompute) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    json capped = kGemma;
    capped[key] = 30.0;
    EXPECT_THAT(refusal(capped), HasSubstr(key));
  }
  json two_ways = kGemma;
  two_ways["use_bidirectional_attention"] = true;
  EXPECT_THAT(refusal(two_ways), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(refusal({{"model_type", "gemma2"}}), HasSubstr("gemma2"));
}

TEST(PublishedModel, FindsGemmaAmongImageParts) {
  const auto lines = settings_of(published_model(kGemma, ""), load_job("model: {type: gpt}\n"), "model");
  const auto model = build(load_job("model: {type: gpt}\n", lines), {.input_shape = {4}, .num_classes = 11});
  const auto family = family_of(*model);
  for (const char* name :
       {"model.norm.weight", "model.language_model.norm.weight", "language_model.model.norm.weight", "norm.weight"}) {
    EXPECT_EQ(family->parameter_of(*model, name), "model.norm.weight") << name;
  }
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"})
    EXPECT_EQ(family->parameter_of(*model, name), "model.embed_tokens.weight") << name;
  EXPECT_EQ(family->parameter_of(*model, "model.vision_tower.vision_model.post_layernorm.weight"), "");
  EXPECT_EQ(family->parameter_of(*model, "multi_modal_projector.mm_input_projection_weight"), "");
}

const json kLlama31{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};

TEST(PublishedModel, ReadsRopeScaling) {
  json llama = kLlama;
  llama["rope_scaling"] = kLlama31;  // wins over rope_parameters, as in transformers
  llama["rope_theta"] = 250.0;
  EXPECT_THAT(
      published_model(llama, "").options,
      AllOf(Contains(Pair("rope_theta", "250.0")), Contains(Pair("rope_scaling.type", "llama3")),
            Contains(Pair("rope_scaling.factor", "8.0")), Contains(Pair("rope_scaling.high_freq_factor", "4.0")),
            Contains(Pair("rope_scaling.original_max_position_embeddings", "8192"))));
  llama["rope_scaling"] = nullptr;
  EXPECT_THAT(published_model(llama, "").options,
              AllOf(Contains(Pair("rope_theta", "500000.0")), Contains(Pair("rope_scaling.type", "none"))));
  llama["rope_parameters"] = {{"type", "linear"}, {"factor", 2.5}};
  EXPECT_THAT(published_model(llama, "").options,
              AllOf(Contains(Pair("rope_scaling.type", "linear")), Contains(Pair("rope_scaling.factor", "2.5"))));
}

const json kYarn{{"rope_type", "yarn"},     {"factor", 4.0},    {"original_max_position_embeddings", 16},
                 {"beta_fast", 8.0},        {"beta_slow", 0.5}, {"truncate", false},
                 {"attention_factor", 1.25}};

TEST(PublishedModel, WritesRopeScalingAsRead) {
  for (const json& scaling : {kLlama31, kYarn}) {
    json llama = kLlama;
    llama["rope_scaling"] = scaling;
    const auto lines = settings_of(published_model(llama, ""), load_job("model: {type: gpt}\n"), "model");
    const DataFacts facts{.input_shape = {4}, .num_classes = 11};
    EXPECT_EQ(published_config(*build(load_job("model: {type: gpt}\n", lines), facts))["rope_scaling"], scaling);
  }
}

TEST(PublishedModel, KeepsActivationOfGpt2) {
  const DataFacts facts{.input_shape = {4}, .num_classes = 5};
  for (const std::string name : {"relu", "silu", "gelu", "gelu_new"}) {
    const json gpt2{{"model_type", "gpt2"}, {"n_layer", 1}, {"n_embd", 24}, {"activation_function", name}};
    const auto lines = settings_of(published_model(gpt2, ""), load_job("model: {type: gpt}\n"), "model");
    const auto model = build(load_job("model: {type: gpt}\n", lines), facts);
    EXPECT_EQ(published_config(*model)["activation_function"], name);
  }
}

TEST(PublishedModel, AdvisesShorterSamplesForShorterModel) {
  try {
    settings_of(published_model(kLlama, ""), load_job("model: {type: gpt, config: {block_size: 8}}\n"), "model");
    FAIL() << "accepted";
  } catch (const config::SpecError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.text.max_length: 8 gives shorter samples"));
  }
}

TEST(PublishedModel, FillsSizesAJobLeavesOut) {
  const std::string text = "model: {type: gpt, config: {dropout: 0.1, n_layer: 2, norm_eps: 0.000001}}\n";
  const auto lines = settings_of(published_model(kLlama, ""), load_job(text), "model");
  const config::Loaded job = load_job(text, lines);
  const auto& spec = job.as<SmallJob>().model.architecture.as<GptSpec>();
  EXPECT_EQ(spec.n_embd, 64);
  EXPECT_EQ(spec.n_kv_head, 2);
  EXPECT_EQ(spec.position, "rotary");
  EXPECT_EQ(spec.rope_theta, 500000);
  EXPECT_EQ(spec.bias, false);
  EXPECT_EQ(spec.dropout, 0.1);  // training settings come from the job
}

TEST(PublishedModel, RefusesJobWithOtherSizes) {
  try {
    settings_of(published_model(kLlama, ""), load_job("model:\n  type: gpt\n  config: {n_layer: 3, n_embd: 36}\n"),
                "model");
    FAIL() << "accepted";
  } catch (const config::SpecError& error) {
    ASSERT_EQ(error.problems().size(), 2U);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("n_layer"), HasSubstr("job.yaml:3"), HasSubstr("n_embd")));
  }
  EXPECT_THROW(settings_of(published_model(kLlama, ""), load_job("model: {type: mlp}\n"), "model"), config::SpecError);
}

bool has_stacks = false;  // whether models are of the family "stack"

/// A family whose files call a multilayer perceptron's parameters otherwise, and hold one that it does not have.
class StackFamily final : public PublishedFamily {
 public:
  explicit StackFamily(const config::NoOptions&) {}
  bool means(const json& config) const override { return config.value("kind", "") == "stack"; }
  PublishedModel model_of(const json& config, const std::string&) const override {
    return {"mlp", {{"hidden", config.at("widths").dump()}}};
  }
  bool names(const Model&) const override { return has_stacks; }
  json config_of(const Model&) const override { return {{"kind", "stack"}}; }
  std::string parameter_of(const Model&, const std::string& name) const override {
    const std::string prefix = "stack.";
    return name == "version" ? "" : name.starts_with(prefix) ? name.substr(prefix.size()) : "not of a stack: " + name;
  }
  std::string file_name_of(const Model&, const std::string& name) const override { return "stack." + name; }
};
const config::Registered<StackFamily, config::NoOptions> registered_stack{families(), "stack", "for this test"};

TEST(PublishedModel, RefusesRoutersItDoesNotCompute) {
  json mixtral = kLlama;
  mixtral["model_type"] = "mixtral";
  EXPECT_THAT(refusal(mixtral), HasSubstr("'num_local_experts' is missing"));
  mixtral["num_local_experts"] = 8;
  EXPECT_THAT(refusal(mixtral), HasSubstr("'num_experts_per_tok' is missing"));
  mixtral["num_experts_per_tok"] = 2;
  EXPECT_THAT(published_model(mixtral, "").options, Contains(Pair("n_expert", "8")));
  mixtral["router_jitter_noise"] = 0.1;
  EXPECT_THAT(refusal(mixtral), HasSubstr("'router_jitter_noise'"));
  mixtral["router_jitter_noise"] = 0;
  EXPECT_THAT(published_model(mixtral, "").options, Contains(Pair("router_aux_loss_coef", "0.001")));
  mixtral["router_aux_loss_coef"] = 0.02;
  EXPECT_THAT(published_model(mixtral, "").options, Contains(Pair("router_aux_loss_coef", "0.02")));
}

TEST(PublishedFamilies, IncludeOneThatAFileRegisters) {
  const auto published = published_model(json{{"kind", "stack"}, {"widths", {6}}}, "");
  EXPECT_EQ(published.type, "mlp");
  EXPECT_THAT(published.options, ElementsAre(Pair("hidden", "[6]")));
  EXPECT_THAT(
      refusal({{"model_type", "t5"}}),
      HasSubstr(
          "bert, camembert, convnext, distilbert, gemma3, gpt2, gpt_neox, llama, mistral, mixtral, modernbert, olmo2, "
          "phi3, qwen2, qwen3, qwen3_moe, roberta, stack, vit and xlm_roberta are supported"));

  OtherHead mlp(3);
  EXPECT_TRUE(published_config(*mlp.model).is_null());
  has_stacks = true;
  EXPECT_EQ(published_config(*mlp.model)["kind"], "stack");
  std::map<std::string, at::Tensor> file{{"version", at::ones({1})}};
  const auto family = family_of(*mlp.model);
  for (const auto& [name, tensor] : mlp.tensors) file[family->file_name_of(*mlp.model, name)] = tensor;
  EXPECT_TRUE(file.contains("stack.classifier.weight"));
  load_weights(*mlp.model, source_of(file));
  has_stacks = false;
  mlp.model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
  });
}

}  // namespace
}  // namespace gputrain::models
