// Decoders of Llama's kind: the same blocks, with small differences between families.
#pragma once

#include <string>

#include "../config_json.hpp"
#include "experts.hpp"

namespace gputrain::models {

/// Layers of a family with a sliding window: none, all, or those that its config.json names.
enum class WindowedLayers { none, all, some };

/// Differences of a family from Llama.
struct LlamaKind {
  const char *model_type, *architecture;
  bool qkv_bias = false;        // biases only in queries, keys and values
  bool qk_norm = false;         // RMSNorm of each head's query and key
  bool has_biases = false;      // `attention_bias` with `mlp_bias`
  bool qk_norm_across = false;  // norm over all heads together
  NormPlaces norms = NormPlaces::before;
  WindowedLayers windowed = WindowedLayers::none;
  nn::Naming naming = nn::Naming::llama;
  bool rotates_part = false;  // `partial_rotary_factor`
  bool scales_rope = true;    // `rope_scaling`
  const ExpertKeys* experts = nullptr;
  nlohmann::json defaults = nlohmann::json::object();  // values of keys that a config.json may lack, as in transformers
};

class LlamaLikeFamily : public PublishedFamily {
 public:
  explicit LlamaLikeFamily(const LlamaKind& kind) : kind_(kind) {}

  bool means(const nlohmann::json& config) const final { return is_model_type(config, kind_.model_type); }
  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const final;
  bool names(const Model& model) const final;
  nlohmann::json config_of(const Model& model) const final;
  std::string parameter_of(const Model& model, const std::string& file_name) const override;

 private:
  LlamaKind kind_;
};

}  // namespace gputrain::models
