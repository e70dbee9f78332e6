// Small models with an adapter, for tests.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>

#include <gtest/gtest.h>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/models/adapter.hpp"

namespace gputrain::models {

/// A job with only an adapter section.
struct AdapterJob {
  struct Section {
    config::Choice type;
    static void describe(config::Description<Section>& d) {
      d.choice("type", &Section::type, adapters(), "kind").required();
    }
  };
  Section adapter;
  static void describe(config::Description<AdapterJob>& d) { d.key("adapter", &AdapterJob::adapter, "what is added"); }
};

/// The adapter of `adapter: {type: lora, <options>}`.
inline std::unique_ptr<Adapter> lora(const std::string& options) {
  const std::string text = "adapter: {type: lora" + (options.empty() ? "" : ", " + options) + "}\n";
  const auto job =
      config::load(config::schema_of<AdapterJob>(), {.file = "job.yaml", .text = text, .set = {}, .environment = {}});
  return adapters().make(job.as<AdapterJob>().adapter.type);
}

inline GptSpec small_llama_spec(bool tied = false) {
  return {.n_layer = 2,
          .n_head = 4,
          .n_kv_head = 2,
          .n_embd = 16,
          .n_inner = 24,
          .position = "rotary",
          .norm = "rmsnorm",
          .activation = "swiglu",
          .tie_embeddings = tied};
}

inline GptSpec small_gpt2_spec() { return {.n_layer = 2, .n_head = 2, .n_embd = 16}; }

/// Returns the spec of "llama" or "gpt2".
inline GptSpec spec_of(const std::string& name) { return name == "llama" ? small_llama_spec() : small_gpt2_spec(); }

/// A Gpt that reads 6 of 11 tokens.
inline std::unique_ptr<Gpt> gpt(const GptSpec& spec, const nn::Context& context = {}) {
  return std::make_unique<Gpt>(spec, context, DataFacts{.input_shape = {6}, .num_classes = 11});
}

inline const nn::Context kFp64Context{.policy = ops::policy_of(ops::Precision::fp64)};

/// Texts that gpt() reads.
inline at::Tensor tokens(uint64_t seed) {
  device::seed_generators(at::kCPU, seed);
  return at::randint(11, {3, 6}, at::TensorOptions().dtype(at::kLong));
}

/// An adapted model whose adapter is not zero.
inline std::unique_ptr<Gpt> adapted(const GptSpec& spec, const std::string& options,
                                    const nn::Context& context = kFp64Context) {
  auto model = gpt(spec, context);
  lora(options)->adapt(*model);
  nn::initialize(*model, 5);
  fit_branches(*model);
  find_starts(*model);
  start_branches(*model);
  device::seed_generators(at::kCPU, 3);
  const at::NoGradGuard no_grad;
  model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    const at::Tensor value = parameter.value.detach();
    if (name.ends_with("lora_B.weight")) value.add_(at::randn_like(value) * 0.3);
    if (name.ends_with("lora_magnitude_vector")) value.mul_(at::randn_like(value) * 0.1 + 1);
  });
  return model;
}

/// Copies the adapter as it is in files.
inline std::map<std::string, at::Tensor> copies(Model& model) {
  std::map<std::string, at::Tensor> tensors;
  for (auto& [name, tensor] : adapter_weights(model)) tensors[name] = tensor.clone();
  return tensors;
}

/// Names what an adapted model trains.
inline std::set<std::string> trained(Model& model) {
  std::set<std::string> names;
  model.each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
    EXPECT_EQ(parameter.trainable, parameter.value.requires_grad()) << name;
    if (parameter.trainable) names.insert(name);
  });
  return names;
}

/// Returns the words with which the adapter is refused.
inline std::string refusal(const GptSpec& spec, const std::string& options) {
  try {
    lora(options)->adapt(*gpt(spec));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace gputrain::models
