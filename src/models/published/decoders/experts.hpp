// Mixtures of experts in a config.json.
#pragma once

#include "../config_json.hpp"

namespace gputrain::models {

/// Keys with which a family describes its experts.
struct ExpertKeys {
  const char* count;                    // number of all experts; num_local_experts in files of transformers 5
  const char* inner;                    // channels inside each expert
  const char* scales_to_one = nullptr;  // whether weights have the sum 1, false by default; null: always
  bool has_dense_layers = false;        // `mlp_only_layers` and `decoder_sparse_step`
};

/// Adds the options of experts. Throws Error(data) for noise on the router or a loss for its balance: not supported.
void add_experts(SpecOptions& options, const ConfigReader& reader, const ExpertKeys& keys);

nlohmann::json experts_config(const GptSpec& spec, const GptSizes& sizes, const ExpertKeys& keys);

/// Returns whether the family can describe the model's experts.
bool has_experts_of(const ExpertKeys& keys, const GptSpec& spec, const GptSizes& sizes);

}  // namespace gputrain::models
