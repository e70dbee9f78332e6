// Hugging Face's LlamaForCausalLM.
#include "config_json.hpp"

namespace gputrain::models {
namespace {

// transformers 4 writes `rope_theta` and `rope_scaling`, transformers 5 writes `rope_parameters`.
double rope_theta(const ConfigReader& reader, const std::string& where) {
  if (reader.find("rope_scaling") != nullptr) {
    reader.refuse("'rope_scaling' is not supported", "use weights with plain rotary positions");
  }
  const nlohmann::json* parameters = reader.find("rope_parameters");
  if (parameters == nullptr) return reader.number("rope_theta", 10000);
  if (!parameters->is_object()) reader.refuse("'rope_parameters' is not a map");
  const ConfigReader inner(*parameters, where + ", rope_parameters");
  if (inner.text("rope_type", "default") != "default") {
    inner.refuse("rope_type '" + inner.text("rope_type", "") + "' is not supported",
                 "use weights with plain rotary positions");
  }
  return inner.number("rope_theta", reader.number("rope_theta", 10000));
}

SpecOptions llama_options(const ConfigReader& reader, const std::string& where) {
  const int64_t channels = reader.required_size("hidden_size"), heads = reader.required_size("num_attention_heads");
  if (reader.size("head_dim").value_or(channels / heads) * heads != channels) {
    reader.refuse("'head_dim' other than hidden_size / num_attention_heads is not supported");
  }
  if (reader.text("hidden_act", "silu") != "silu") reader.refuse("'hidden_act' other than silu is not supported");
  const bool bias = reader.flag("attention_bias", false);
  if (reader.flag("mlp_bias", false) != bias) {
    reader.refuse(std::string(bias ? "'attention_bias: true' without" : "'mlp_bias: true' without") +
                  (bias ? " 'mlp_bias'" : " 'attention_bias'") + " is not supported: all layers have biases, or none");
  }
  SpecOptions options;
  options.add("n_layer", reader.required_size("num_hidden_layers"));
  options.add("n_head", heads);
  options.add("n_kv_head", reader.size("num_key_value_heads").value_or(heads));
  options.add("n_embd", channels);
  options.add("n_inner", reader.required_size("intermediate_size"));
  options.add("block_size", reader.size("max_position_embeddings").value_or(2048));
  options.add("vocab_size", reader.required_size("vocab_size"));
  options.add("bias", bias);
  options.add("position", "rotary");
  options.add("norm", "rmsnorm");
  options.add("activation", "swiglu");
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", false));
  options.add("rope_theta", rope_theta(reader, where));
  options.add("norm_eps", reader.number("rms_norm_eps", 1e-6));
  return options;
}

nlohmann::json llama_config(const GptSpec& spec, const GptSizes& sizes) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"max_position_embeddings", sizes.positions},
          {"hidden_size", sizes.channels},
          {"intermediate_size", sizes.inner},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.key_heads},
          {"hidden_act", "silu"},
          {"attention_bias", sizes.bias},
          {"mlp_bias", sizes.bias},
          {"attention_dropout", spec.dropout},
          {"rms_norm_eps", spec.norm_eps},
          {"rope_theta", spec.rope_theta}};
}

class LlamaFamily final : public PublishedFamily {
 public:
  explicit LlamaFamily(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override { return is_model_type(config, "llama"); }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    return {"gpt", llama_options(ConfigReader(config, where), where).list};
  }

  bool names(const Model& model) const override {
    const auto* gpt = dynamic_cast<const Gpt*>(&model);
    return gpt != nullptr && gpt->sizes().naming == nn::Naming::llama;
  }

  nlohmann::json config_of(const Model& model) const override {
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    return completed(llama_config(gpt.spec(), gpt.sizes()), gpt);
  }

  std::string parameter_of(const Model& model, const std::string& file_name) const override {
    if (dynamic_cast<const Gpt&>(model).spec().tie_embeddings && file_name == "lm_head.weight") return {};
    return file_name.ends_with(".rotary_emb.inv_freq") ? "" : file_name;
  }
};

const config::Registered<LlamaFamily, config::NoOptions> registered_llama{families(), "llama", "Llama"};

}  // namespace
}  // namespace gputrain::models
