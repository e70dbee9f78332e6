// Mixtures of experts in a config.json.
#pragma once

#include "../config_json.hpp"

namespace gputrain::models {

/// How a family names what it says about its experts.
struct ExpertKeys {
  const char* count;                    // of all experts; files that transformers 5 writes call it num_local_experts
  const char* inner;                    // channels inside each
  const char* scales_to_one = nullptr;  // whether weights have the sum 1, false by default; null: always
  bool has_dense_layers = false;        // `mlp_only_layers` and `decoder_sparse_step`
};

/// Throws Error(data) for what we do not compute: noise on the router, a loss for its balance.
void add_experts(SpecOptions& options, const ConfigReader& reader, const ExpertKeys& keys);

nlohmann::json experts_config(const GptSpec& spec, const GptSizes& sizes, const ExpertKeys& keys);

/// Whether the family can say what the model's experts are.
bool has_experts_of(const ExpertKeys& keys, const GptSpec& spec, const GptSizes& sizes);

}  // namespace gputrain::models
