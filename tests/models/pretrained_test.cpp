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

#include "../../src/models/gpt.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"
#include "models/small_job.hpp"

namespace gputrain::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
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

TEST(PublishedModel, RefusesUnsupportedAndBrokenConfigs) {
  const auto with = [](json config, const char* key, const json& value) {
    config[key] = value;
    return refusal(config);
  };
  EXPECT_THAT(with(kLlama, "rope_scaling", {{"rope_type", "llama3"}}), HasSubstr("rope_scaling"));
  EXPECT_THAT(with(kLlama, "rope_parameters", {{"rope_type", "yarn"}}), HasSubstr("yarn"));
  EXPECT_THAT(with(kLlama, "head_dim", 128), HasSubstr("head_dim"));
  EXPECT_THAT(with(kLlama, "hidden_act", "gelu"), HasSubstr("hidden_act"));
  EXPECT_THAT(with(kLlama, "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(with(kLlama, "hidden_size", "wide"), HasSubstr("hidden_size"));
  EXPECT_THAT(with(kLlama, "num_hidden_layers", -1), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with(kLlama, "num_hidden_layers", nullptr), HasSubstr("missing"));
  EXPECT_THAT(with({{"model_type", "gpt2"}}, "scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by"));
  EXPECT_THAT(with({{"model_type", "gpt2"}}, "activation_function", "mish"), HasSubstr("mish"));
  EXPECT_THAT(refusal({{"model_type", "bert"}}), HasSubstr("bert"));
  EXPECT_THAT(refusal(json::array()), HasSubstr("JSON object"));
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

/// A source with a constant value for each tensor of a small GPT-2.
TensorSource source_of(std::map<std::string, at::Tensor> tensors) {
  TensorSource source{.where = "w/model.safetensors"};
  for (const auto& [name, tensor] : tensors) source.names.push_back(name);
  source.tensor = [tensors = std::move(tensors)](const std::string& name) { return tensors.at(name); };
  return source;
}

struct Tiny {
  Tiny() {
    nn::initialize(model, 1);
    model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      tensors[name] = at::full(parameter.value.sizes(), 0.25, at::kBFloat16);
    });
  }
  Gpt model{{.n_layer = 1, .n_head = 2, .n_embd = 8}, {}, {.input_shape = {4}, .num_classes = 5}};
  std::map<std::string, at::Tensor> tensors;
};

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

/// Weights of an MLP for `classes` classes, and a model for three classes.
struct OtherHead {
  explicit OtherHead(int64_t classes, int64_t inputs = 4) {
    const auto job = load_job("model: {type: mlp, config: {hidden: [6]}}");
    model = build(job, {.input_shape = {1, 2, 2}, .num_classes = 3});
    nn::initialize(*model, 1);
    const auto theirs = build(job, {.input_shape = {1, 1, inputs}, .num_classes = classes});
    theirs->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      tensors[name] = at::full(parameter.value.sizes(), 0.25);
    });
  }
  std::unique_ptr<Model> model;
  std::map<std::string, at::Tensor> tensors;
};

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
    return name == "version" ? "" : name.substr(std::string("stack.").size());
  }
  std::string file_name_of(const Model&, const std::string& name) const override { return "stack." + name; }
};
const config::Registered<StackFamily, config::NoOptions> registered_stack{families(), "stack", "for this test"};

TEST(PublishedFamilies, IncludeOneThatAFileRegisters) {
  const auto published = published_model(json{{"kind", "stack"}, {"widths", {6}}}, "");
  EXPECT_EQ(published.type, "mlp");
  EXPECT_THAT(published.options, ElementsAre(Pair("hidden", "[6]")));
  EXPECT_THAT(refusal({{"model_type", "bert"}}), HasSubstr("gpt2, llama and stack are supported"));

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
