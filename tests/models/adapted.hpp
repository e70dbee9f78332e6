// Small models with an adapter, for tests.
#pragma once

#include <memory>
#include <string>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/config/load.hpp"
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

/// A Gpt that reads 6 of 11 tokens.
inline std::unique_ptr<Gpt> gpt(const GptSpec& spec, const nn::Context& context = {}) {
  return std::make_unique<Gpt>(spec, context, DataFacts{.input_shape = {6}, .num_classes = 11});
}

}  // namespace gputrain::models
