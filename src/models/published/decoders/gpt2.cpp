// Hugging Face's GPT2LMHeadModel.
#include <string_view>

#include "../activations.hpp"
#include "../config_json.hpp"

namespace gputrain::models {
namespace {

SpecOptions gpt2_options(const ConfigReader& reader) {
  reader.expect_flag("scale_attn_weights", true);
  reader.expect_flag("scale_attn_by_inverse_layer_idx", false);
  reader.expect_flag("add_cross_attention", false);
  SpecOptions options;
  options.add("n_layer", reader.size("n_layer").value_or(12));
  options.add("n_head", reader.size("n_head").value_or(12));
  const int64_t channels = reader.size("n_embd").value_or(768);
  options.add("n_embd", channels);
  options.add("n_inner", reader.size("n_inner").value_or(4 * channels));
  options.add("block_size", reader.size("n_positions").value_or(1024));
  options.add("vocab_size", reader.size("vocab_size").value_or(50257));
  options.add("bias", true);
  options.add("position", "learned");
  options.add("norm", "layernorm");
  options.add("activation", activation_option(reader, "activation_function", "gelu_new"));
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", true));
  options.add("norm_eps", reader.number("layer_norm_epsilon", 1e-5));
  return options;
}

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> ends) {
  for (const auto end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

nlohmann::json gpt2_config(const GptSpec& spec, const GptSizes& sizes) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_positions", sizes.positions},
          {"n_embd", sizes.channels},
          {"n_layer", sizes.layers},
          {"n_head", sizes.heads},
          {"n_inner", sizes.inner},
          {"activation_function", activation_function(sizes.activation)},
          {"embd_pdrop", spec.dropout},
          {"attn_pdrop", spec.dropout},
          {"resid_pdrop", spec.dropout},
          {"layer_norm_epsilon", spec.norm_eps}};
}

/// Returns whether the Gpt computes exactly what GPT-2 does.
bool is_gpt2(const GptSpec& spec, const GptSizes& sizes) {
  const bool has_plain_blocks = !spec.window && !spec.query_pre_attn_scalar && !spec.parallel_residual;
  return has_plain_blocks && !spec.scale_embeddings && !sizes.rotary && !sizes.rmsnorm && !sizes.gated && sizes.bias &&
         sizes.qkv_bias && sizes.key_heads == sizes.heads && sizes.heads * sizes.head_channels == sizes.channels;
}

class Gpt2Family final : public PublishedFamily {
 public:
  explicit Gpt2Family(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override { return is_model_type(config, "gpt2"); }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    return {"gpt", gpt2_options(ConfigReader(config, where)).list};
  }

  /// Accepts also combinations of options that are not GPT-2, but use its names.
  bool names(const Model& model) const override {
    const auto* gpt = dynamic_cast<const Gpt*>(&model);
    return gpt != nullptr && gpt->sizes().naming == nn::Naming::gpt2;
  }

  nlohmann::json config_of(const Model& model) const override {
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    return is_gpt2(gpt.spec(), gpt.sizes()) ? completed(gpt2_config(gpt.spec(), gpt.sizes()), gpt) : nlohmann::json();
  }

  std::string parameter_of(const Model& model, const std::string& file_name) const override {
    // Older files store the causal mask like a weight.
    if (ends_with_any(file_name, {".attn.bias", ".attn.masked_bias"})) return {};
    // Files of the bare transformer have no prefix.
    const bool bare = file_name.starts_with("wte.") || file_name.starts_with("wpe.") || file_name.starts_with("h.") ||
                      file_name.starts_with("ln_f.");
    if (bare) return "transformer." + file_name;
    if (file_name != "lm_head.weight") return file_name;
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    if (gpt.sizes().classes > 0) return {};
    return gpt.spec().tie_embeddings ? "transformer.wte.weight" : file_name;
  }
};

const config::Registered<Gpt2Family, config::NoOptions> registered_gpt2{families(), "gpt2", "GPT-2"};

}  // namespace
}  // namespace gputrain::models
