// Hugging Face's ModernBertModel and its heads.
#include <algorithm>

#include "../activations.hpp"
#include "../decoders/windows.hpp"
#include "encoder_family.hpp"

namespace gputrain::models {
namespace {

constexpr int64_t kModernbertWindow = 128;   // tokens of `local_attention`, both sides together
constexpr int64_t kModernbertFullEvery = 3;  // period of layers without a window, if config.json does not say

/// Rejects biases, and dropouts that we cannot set separately.
void expect_plain_modernbert(const ConfigReader& reader) {
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"}) reader.expect_flag(key, false);
  reader.expect_flag("decoder_bias", true);
  reader.expect_null("rope_scaling");
  if (reader.text("classifier_activation", "gelu") != "gelu")
    reader.refuse("'classifier_activation' other than gelu is not supported");
  if (reader.number("embedding_dropout", 0) != reader.number("mlp_dropout", 0))
    reader.refuse("'embedding_dropout' and 'mlp_dropout' differ, which is not supported",
                  "make them equal in config.json: weights do not depend on them");
}

/// Returns the base of the rotary angles in layers of this type; transformers 5 writes it in a map.
double theta_of(const ConfigReader& reader, const char* type, const char* old_key, double fallback) {
  const double old = reader.number(old_key, fallback);
  const nlohmann::json* maps = reader.find("rope_parameters");
  if (maps == nullptr || !maps->contains(type) || (*maps)[type].is_null()) return old;
  const ConfigReader rope((*maps)[type], std::string("rope_parameters.") + type + " of the config.json");
  if (rope.text("rope_type", "default") != "default") rope.refuse("'rope_type' other than default is not supported");
  return rope.number("rope_theta", old);
}

void read_modernbert(EncoderOptions& options, const ConfigReader& reader) {
  expect_plain_modernbert(reader);
  auto& [fixed, defaults] = options;
  const int64_t layers = reader.required_size("num_hidden_layers");
  fixed.add("n_layer", layers);
  fixed.add("n_head", reader.required_size("num_attention_heads"));
  fixed.add("n_embd", reader.required_size("hidden_size"));
  fixed.add("n_inner", reader.required_size("intermediate_size"));
  fixed.add("block_size", reader.size("max_position_embeddings").value_or(8192));
  fixed.add("activation", activation_option(reader, "hidden_activation", "gelu"));
  fixed.add("norm_eps", reader.number("norm_eps", 1e-5));
  const int64_t every = reader.size("global_attn_every_n_layers").value_or(kModernbertFullEvery);
  const auto types = layer_types_of(reader, layers, [every](int64_t layer) { return layer % every != 0; });
  add_windows(fixed, reader.count("local_attention").value_or(kModernbertWindow) / 2 + 1, types);
  fixed.add("rope_theta", theta_of(reader, kFullLayer, "global_rope_theta", 160000));
  const bool has_windows = std::ranges::find(types, kSlidingLayer) != types.end();
  if (has_windows) fixed.add("rope_local_theta", theta_of(reader, kSlidingLayer, "local_rope_theta", 10000));
  defaults.add("dropout", reader.number("embedding_dropout", 0));
  defaults.add("attention_dropout", reader.number("attention_dropout", 0));
  defaults.add("head_dropout", reader.number("classifier_dropout", 0));
  if (reader.text("classifier_pooling", "cls") == "mean") defaults.add("pooling", "mean");
}

nlohmann::json modernbert_config(const EncoderSizes& sizes) {
  const int64_t window = windows_in(sizes.windows).size;
  return {{"hidden_size", sizes.channels},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"intermediate_size", sizes.inner},
          {"cls_token_id", nullptr},
          {"sep_token_id", nullptr},
          {"hidden_activation", activation_function(sizes.activation)},
          {"max_position_embeddings", sizes.positions},
          {"norm_eps", sizes.norm_eps},
          {"norm_bias", false},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"decoder_bias", true},
          {"classifier_bias", false},
          {"classifier_activation", "gelu"},
          {"classifier_pooling", sizes.pooling == Pooling::mean ? "mean" : "cls"},
          {"layer_types", layer_types_in(sizes.windows)},
          {"local_attention", window > 0 ? 2 * (window - 1) : kModernbertWindow},
          {"global_rope_theta", sizes.rope_theta},
          {"local_rope_theta", sizes.rope_local_theta},
          {"embedding_dropout", sizes.dropout},
          {"mlp_dropout", sizes.dropout},
          {"attention_dropout", sizes.attention_dropout},
          {"classifier_dropout", sizes.head_dropout}};
}

class ModernbertFamily final : public EncoderFamily {
 public:
  explicit ModernbertFamily(const config::NoOptions&)
      : EncoderFamily({.name = "modernbert",
                       .model_type = "modernbert",
                       .architecture = "ModernBert",
                       .read = read_modernbert,
                       .write = modernbert_config}) {}
};

const config::Registered<ModernbertFamily, config::NoOptions> registered_modernbert{families(), "modernbert",
                                                                                    "ModernBERT"};

}  // namespace
}  // namespace gputrain::models
