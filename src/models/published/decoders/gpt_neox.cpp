// Hugging Face's GPTNeoXForCausalLM, of GPT-NeoX and Pythia.
#include "../activations.hpp"
#include "decoder.hpp"
#include "rope.hpp"
#include "windows.hpp"

namespace gputrain::models {
namespace {

constexpr RopeKeys kNeoxRope{.theta = "rotary_emb_base", .share = "rotary_pct", .default_share = 0.25};

SpecOptions neox_options(const ConfigReader& reader, const std::string& where) {
  for (const char* key : {"head_dim", "num_key_value_heads"}) reader.expect_null(key);
  reader.expect_flag("attention_bias", true);
  SpecOptions options;
  add_sizes(options, reader);
  options.add("bias", true);
  options.add("layout", "gpt_neox");
  options.add("position", "rotary");
  options.add("norm", "layernorm");
  options.add("activation", activation_option(reader, "hidden_act", "gelu"));
  options.add("parallel_residual", reader.flag("use_parallel_residual", true));
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", false));
  const Rope rope = rope_of(reader, where, kNeoxRope);
  options.add("partial_rotary_factor", rope.share);
  add_rope(options, rope);
  options.add("norm_eps", reader.number("layer_norm_eps", 1e-5));
  return options;
}

/// Returns whether the Gpt computes exactly what GPT-NeoX does.
bool is_neox(const GptSpec& spec, const GptSizes& sizes) {
  const bool has_plain_attention = windows_in(sizes.windows).layers == 0 && !spec.query_pre_attn_scalar &&
                                   sizes.heads * sizes.head_channels == sizes.channels;
  const bool has_norms = !sizes.rmsnorm && sizes.norm_places == NormPlaces::before;
  return has_plain_attention && has_norms && !spec.scale_embeddings && sizes.bias && sizes.qkv_bias;
}

nlohmann::json neox_config(const GptSpec& spec, const GptSizes& sizes) {
  nlohmann::json config = sizes_config(sizes, "gpt_neox", "GPTNeoXForCausalLM");
  for (const char* key : {"head_dim", "num_key_value_heads"}) config.erase(key);
  config["hidden_act"] = activation_function(sizes.activation);
  config["attention_dropout"] = spec.dropout;
  config["hidden_dropout"] = spec.dropout;
  config["use_parallel_residual"] = spec.parallel_residual;
  config["layer_norm_eps"] = spec.norm_eps;
  config["rotary_emb_base"] = spec.rope_theta;
  config["rotary_pct"] = spec.partial_rotary_factor;
  config["rope_scaling"] = rope_scaling_config(spec.rope_scaling, sizes);
  return config;
}

class GptNeoxFamily final : public PublishedFamily {
 public:
  explicit GptNeoxFamily(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override { return is_model_type(config, "gpt_neox"); }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    return {"gpt", neox_options(ConfigReader(config, where), where).list};
  }

  bool names(const Model& model) const override {
    const auto* gpt = dynamic_cast<const Gpt*>(&model);
    return gpt != nullptr && gpt->sizes().naming == nn::Naming::gpt_neox;
  }

  nlohmann::json config_of(const Model& model) const override {
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    return is_neox(gpt.spec(), gpt.sizes()) ? completed(neox_config(gpt.spec(), gpt.sizes()), gpt) : nullptr;
  }

  std::string parameter_of(const Model& model, const std::string& file_name) const override {
    // Older files store the causal mask and the frequencies like weights.
    for (const char* end : {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"}) {
      if (file_name.ends_with(end)) return {};
    }
    // Files of the bare transformer have no prefix.
    for (const char* start : {"embed_in.", "layers.", "final_layer_norm."}) {
      if (file_name.starts_with(start)) return "gpt_neox." + file_name;
    }
    if (file_name != "embed_out.weight" && file_name != "lm_head.weight") return file_name;
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    if (gpt.sizes().classes > 0) return {};
    return gpt.spec().tie_embeddings ? "gpt_neox.embed_in.weight" : "embed_out.weight";
  }
};

const config::Registered<GptNeoxFamily, config::NoOptions> registered_gpt_neox{families(), "gpt_neox",
                                                                               "GPT-NeoX, Pythia"};

}  // namespace
}  // namespace gputrain::models
