#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {
namespace {

using nlohmann::json;

/// Reads the keys of one config.json. A value of the wrong type is an error that names file and key.
class Reader {
 public:
  Reader(const json& config, std::string where) : config_(config), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string what, std::string hint = {}) const {
    throw Error(ExitCode::data, {.what = std::move(what), .where = where_, .hint = std::move(hint)});
  }

  /// Null counts as missing, as in transformers.
  const json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<int64_t> size(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<int64_t>() < 1) refuse_value(key, *value, "a whole number above 0");
    return value->get<int64_t>();
  }

  int64_t required_size(const char* key) const {
    const auto value = size(key);
    if (!value) refuse(std::string("'") + key + "' is missing");
    return *value;
  }

  double number(const char* key, double fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) refuse_value(key, *value, "a number");
    return value->get<double>();
  }

  bool flag(const char* key, bool fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse_value(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) refuse_value(key, *value, "a string");
    return value->get<std::string>();
  }

  /// For keys that change the computation in a way that we do not support.
  void expect_flag(const char* key, bool only) const {
    if (flag(key, only) != only) {
      refuse(std::string("'") + key + ": " + (only ? "false" : "true") + "' is not supported",
             "use weights trained without it");
    }
  }

 private:
  [[noreturn]] void refuse_value(const char* key, const json& value, const char* expected) const {
    refuse(std::string("'") + key + "' is " + value.dump().substr(0, 40) + ", expected " + expected);
  }

  const json& config_;
  std::string where_;
};

/// Collects options as YAML scalars.
class Options {
 public:
  void add(const char* name, int64_t value) { list.emplace_back(name, std::to_string(value)); }
  void add(const char* name, double value) { list.emplace_back(name, json(value).dump()); }
  void add(const char* name, bool value) { list.emplace_back(name, value ? "true" : "false"); }
  void add(const char* name, const char* value) { list.emplace_back(name, value); }
  std::vector<std::pair<std::string, std::string>> list;
};

const char* activation_option(const Reader& reader, const std::string& name) {
  constexpr std::array<std::pair<std::string_view, const char*>, 7> kActivations{{{"gelu_new", "gelu_tanh"},
                                                                                  {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                                  {"gelu_fast", "gelu_tanh"},
                                                                                  {"gelu", "gelu"},
                                                                                  {"relu", "relu"},
                                                                                  {"silu", "silu"},
                                                                                  {"swish", "silu"}}};
  for (const auto& [theirs, ours] : kActivations) {
    if (theirs == name) return ours;
  }
  reader.refuse("activation_function '" + name + "' is not supported");
}

Options gpt2_options(const Reader& reader) {
  reader.expect_flag("scale_attn_weights", true);
  reader.expect_flag("scale_attn_by_inverse_layer_idx", false);
  reader.expect_flag("add_cross_attention", false);
  Options options;
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
  options.add("activation", activation_option(reader, reader.text("activation_function", "gelu_new")));
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", true));
  options.add("norm_eps", reader.number("layer_norm_epsilon", 1e-5));
  return options;
}

// transformers 4 writes `rope_theta` and `rope_scaling`, transformers 5 writes `rope_parameters`.
double rope_theta(const Reader& reader, const std::string& where) {
  if (reader.find("rope_scaling") != nullptr) {
    reader.refuse("'rope_scaling' is not supported", "use weights with plain rotary positions");
  }
  const json* parameters = reader.find("rope_parameters");
  if (parameters == nullptr) return reader.number("rope_theta", 10000);
  if (!parameters->is_object()) reader.refuse("'rope_parameters' is not a map");
  const Reader inner(*parameters, where + ", rope_parameters");
  if (inner.text("rope_type", "default") != "default") {
    inner.refuse("rope_type '" + inner.text("rope_type", "") + "' is not supported",
                 "use weights with plain rotary positions");
  }
  return inner.number("rope_theta", reader.number("rope_theta", 10000));
}

Options llama_options(const Reader& reader, const std::string& where) {
  const int64_t channels = reader.required_size("hidden_size"), heads = reader.required_size("num_attention_heads");
  if (reader.size("head_dim").value_or(channels / heads) * heads != channels) {
    reader.refuse("'head_dim' other than hidden_size / num_attention_heads is not supported");
  }
  if (reader.text("hidden_act", "silu") != "silu") reader.refuse("'hidden_act' other than silu is not supported");
  const bool bias = reader.flag("attention_bias", false);
  if (reader.flag("mlp_bias", false) != bias) reader.refuse("'mlp_bias' other than attention_bias is not supported");
  Options options;
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

}  // namespace

PublishedModel published_model(const json& config, const std::string& where) {
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = where});
  const Reader reader(config, where);
  const std::string type = reader.text("model_type", "");
  if (type == "gpt2") return {"gpt", gpt2_options(reader).list};
  if (type == "llama") return {"gpt", llama_options(reader, where).list};
  reader.refuse(type.empty() ? "'model_type' is missing" : "model_type '" + type + "' is not supported",
                "gpt2 and llama are supported; for other models, give a safetensors file");
}

}  // namespace gputrain::models
