// Hugging Face's LlamaForCausalLM.
#include <string>

#include "config_json.hpp"

namespace gputrain::models {
namespace {

// transformers 4 writes `rope_scaling` and, beside it, `rope_theta`; transformers 5 writes `rope_parameters`, and takes
// `rope_scaling` where there are both.
const char* rope_key(const ConfigReader& reader) {
  const nlohmann::json* scaling = reader.find("rope_scaling");
  return scaling != nullptr && !scaling->empty() ? "rope_scaling" : "rope_parameters";
}

/// The rope_type, in older files `type`, as our option.
std::string rope_scaling_of(const ConfigReader& rope) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return "none";
  if (type == "linear" || type == "llama3") return type;
  rope.refuse("rope_type '" + type + "' is not supported; default, linear and llama3 are",
              type == "dynamic" ? "take it out of config.json: it acts only on texts beyond max_position_embeddings"
                                : "use weights with one of those");
}

void add_rope(SpecOptions& options, const ConfigReader& reader, const std::string& where) {
  const std::string key = rope_key(reader);
  const nlohmann::json* found = reader.find(key.c_str());
  const nlohmann::json map = found != nullptr ? *found : nlohmann::json::object();
  if (!map.is_object()) reader.refuse("'" + key + "' is not a map");
  const ConfigReader rope(map, where + ", " + key);
  if (rope.number("partial_rotary_factor", reader.number("partial_rotary_factor", 1)) != 1) {
    rope.refuse("'partial_rotary_factor' other than 1 is not supported");
  }
  options.add("rope_theta", rope.number("rope_theta", reader.number("rope_theta", 10000)));
  const std::string scaling = rope_scaling_of(rope);
  options.add("rope_scaling.type", scaling.c_str());
  if (scaling != "none") options.add("rope_scaling.factor", rope.required_number("factor"));
  if (scaling != "llama3") return;
  options.add("rope_scaling.low_freq_factor", rope.required_number("low_freq_factor"));
  options.add("rope_scaling.high_freq_factor", rope.required_number("high_freq_factor"));
  const auto original = rope.size("original_max_position_embeddings");
  if (original) options.add("rope_scaling.original_max_position_embeddings", *original);
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
  add_rope(options, reader, where);
  options.add("norm_eps", reader.number("rms_norm_eps", 1e-6));
  return options;
}

nlohmann::json scaling_config(const RopeScalingSpec& spec, const GptSizes& sizes) {
  if (spec.type == "none") return nullptr;
  nlohmann::json config{{"rope_type", spec.type}, {"factor", spec.factor}};
  if (spec.type == "linear") return config;
  config["low_freq_factor"] = spec.low_freq_factor;
  config["high_freq_factor"] = spec.high_freq_factor;
  config["original_max_position_embeddings"] = spec.original_max_position_embeddings.value_or(sizes.positions);
  return config;
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
          {"rope_theta", spec.rope_theta},
          {"rope_scaling", scaling_config(spec.rope_scaling, sizes)}};
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
    if (file_name.ends_with(".rotary_emb.inv_freq")) return {};
    // Files of the bare transformer have no prefix.
    for (const char* start : {"embed_tokens.", "layers.", "norm."}) {
      if (file_name.starts_with(start)) return "model." + file_name;
    }
    const bool is_tied = dynamic_cast<const Gpt&>(model).spec().tie_embeddings && file_name == "lm_head.weight";
    return is_tied ? "model.embed_tokens.weight" : file_name;
  }
};

const config::Registered<LlamaFamily, config::NoOptions> registered_llama{families(), "llama", "Llama"};

}  // namespace
}  // namespace gputrain::models
