// Hugging Face's Gemma3ForCausalLM, and the language model inside a Gemma3ForConditionalGeneration.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "decoder.hpp"
#include "rope.hpp"
#include "windows.hpp"

namespace gputrain::models {
namespace {

constexpr double kLocalTheta = 10000, kGlobalTheta = 1000000;
constexpr int64_t kWindow = 4096;

/// Returns the values of keys that files leave out, as in transformers' Gemma3TextConfig.
const nlohmann::json& defaults() {
  static const nlohmann::json values{{"vocab_size", 262208},
                                     {"hidden_size", 2304},
                                     {"intermediate_size", 9216},
                                     {"num_hidden_layers", 26},
                                     {"num_attention_heads", 8},
                                     {"num_key_value_heads", 4},
                                     {"head_dim", 256},
                                     {"max_position_embeddings", 131072},
                                     {"tie_word_embeddings", true}};
  return values;
}

/// Returns the config.json of the language model, with defaults.
nlohmann::json language_part(const nlohmann::json& config, const std::string& where) {
  nlohmann::json language = defaults();
  const auto part = config.find("text_config");
  if (part == config.end()) {
    language.update(config);
    return language;
  }
  if (!part->is_object()) ConfigReader(config, where).refuse("'text_config' is not a map");
  language.update(*part);
  if (config.contains("tie_word_embeddings")) language["tie_word_embeddings"] = config["tie_word_embeddings"];
  return language;
}

void expect_gemma3(const ConfigReader& reader) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) reader.expect_null(key);
  for (const char* key : {"attention_bias", "use_bidirectional_attention"}) reader.expect_flag(key, false);
  const std::string activation = reader.text("hidden_activation", reader.text("hidden_act", "gelu_pytorch_tanh"));
  if (activation != "gelu_pytorch_tanh")
    reader.refuse("'hidden_activation' other than gelu_pytorch_tanh is not supported");
}

/// Adds the windows; returns false if no layer has one.
bool add_layers(SpecOptions& options, const ConfigReader& reader) {
  const auto window = reader.has("sliding_window") ? reader.size("sliding_window") : kWindow;
  const int64_t period = reader.size("sliding_window_pattern").value_or(6);
  const auto types = layer_types_of(reader, reader.required_size("num_hidden_layers"),
                                    [period](int64_t layer) { return (layer + 1) % period != 0; });
  if (!window) reader.refuse("'sliding_window' is null");
  add_windows(options, *window, types);
  return std::ranges::find(types, kSlidingLayer) != types.end();
}

/// Returns the rotary positions of one type of layers, in files of transformers 5.
nlohmann::json rope_map(const ConfigReader& reader, const char* layer_type) {
  const nlohmann::json* all = reader.find("rope_parameters");
  if (all == nullptr) return nlohmann::json::object();
  const auto found = all->find(layer_type);
  if (!all->is_object() || (!all->empty() && found == all->end())) {
    reader.refuse(std::string("'rope_parameters' has no '") + layer_type + "'");
  }
  return found == all->end() || found->is_null() ? nlohmann::json::object() : *found;
}

Rope rope_of_layers(const ConfigReader& reader, const std::string& where, const char* layer_type, RopeKeys keys) {
  nlohmann::json config{{"rope_parameters", rope_map(reader, layer_type)}};
  if (const auto* theta = reader.find(keys.theta)) config[keys.theta] = *theta;
  const Rope rope = rope_of(ConfigReader(config, where), where + ", " + layer_type, keys);
  expect_whole_heads(rope);
  return rope;
}

void add_ropes(SpecOptions& options, const ConfigReader& reader, const std::string& where, bool has_windows) {
  Rope full = rope_of_layers(reader, where, kFullLayer, {.default_theta = kGlobalTheta});
  if (const nlohmann::json* scaling = reader.find("rope_scaling")) {
    if (!scaling->is_object()) reader.refuse("'rope_scaling' is not a map");
    full.map.update(*scaling);
  }
  add_rope(options, full);
  if (!has_windows) return;
  const Rope local =
      rope_of_layers(reader, where, kSlidingLayer, {.theta = "rope_local_base_freq", .default_theta = kLocalTheta});
  const ConfigReader map(local.map, local.where);
  if (map.text("rope_type", map.text("type", "default")) != "default") {
    map.refuse("'rope_type' of sliding layers other than default is not supported");
  }
  options.add("rope_local_theta", local.theta);
}

SpecOptions gemma3_options(const ConfigReader& reader, const std::string& where) {
  expect_gemma3(reader);
  SpecOptions options;
  add_sizes(options, reader);
  const bool has_windows = add_layers(options, reader);
  options.add("bias", false);
  options.add("qk_norm", true);
  options.add("position", "rotary");
  options.add("norm", "rmsnorm_1p");
  options.add("norms", "both");
  options.add("activation", "geglu_tanh");
  options.add("query_pre_attn_scalar", reader.number("query_pre_attn_scalar", 256));
  options.add("scale_embeddings", true);
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", true));
  add_ropes(options, reader, where, has_windows);
  options.add("norm_eps", reader.number("rms_norm_eps", 1e-6));
  return options;
}

/// Returns whether the Gpt computes exactly what Gemma 3 does.
bool is_gemma3(const GptSpec& spec, const GptSizes& sizes) {
  const bool has_parts = !spec.parallel_residual && spec.partial_rotary_factor == 1 && spec.qk_norm &&
                         !spec.qk_norm_across_heads && spec.scale_embeddings && sizes.norm_places == NormPlaces::both;
  const bool has_ropes = spec.rope_local_theta || windows_in(sizes.windows).layers == 0;
  return has_parts && has_ropes && spec.n_expert == 0 && spec.activation == "geglu_tanh" && !sizes.bias &&
         !sizes.qkv_bias;
}

/// Writes whole numbers without a point, as transformers requires.
nlohmann::json whole_if_it_is(double value) {
  if (value == std::floor(value) && value < 1e15) return static_cast<int64_t>(value);
  return value;
}

nlohmann::json gemma3_config(const GptSpec& spec, const GptSizes& sizes) {
  const Windows windows = windows_in(sizes.windows);
  nlohmann::json config = sizes_config(sizes, "gemma3_text", "Gemma3ForCausalLM");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_dropout"] = spec.dropout;
  config["query_pre_attn_scalar"] =
      whole_if_it_is(spec.query_pre_attn_scalar.value_or(static_cast<double>(sizes.head_channels)));
  config["sliding_window"] = windows.layers > 0 ? windows.size : kWindow;
  config["layer_types"] = layer_types_in(sizes.windows);
  config["rms_norm_eps"] = spec.norm_eps;
  config["rope_theta"] = spec.rope_theta;
  config["rope_local_base_freq"] = spec.rope_local_theta.value_or(kLocalTheta);
  config["rope_scaling"] = rope_scaling_config(spec.rope_scaling, sizes);
  return config;
}

class Gemma3Family final : public PublishedFamily {
 public:
  explicit Gemma3Family(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override {
    return is_model_type(config, "gemma3_text") || (is_model_type(config, "gemma3") && config.contains("text_config"));
  }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    const nlohmann::json language = language_part(config, where);
    return {"gpt", gemma3_options(ConfigReader(language, where), where).list};
  }

  /// Accepts also decoders that are not Gemma, but have its norms.
  bool names(const Model& model) const override {
    const auto* gpt = dynamic_cast<const Gpt*>(&model);
    return gpt != nullptr && gpt->sizes().naming == nn::Naming::llama && gpt->sizes().norms_from_one;
  }

  nlohmann::json config_of(const Model& model) const override {
    const auto& gpt = dynamic_cast<const Gpt&>(model);
    return is_gemma3(gpt.spec(), gpt.sizes()) ? completed(gemma3_config(gpt.spec(), gpt.sizes()), gpt) : nullptr;
  }

  std::string parameter_of(const Model& model, const std::string& file_name) const override {
    for (const char* image_part : {"vision_tower.", "multi_modal_projector."}) {
      if (file_name.starts_with(image_part) || file_name.starts_with(std::string("model.") + image_part)) return {};
    }
    constexpr std::array<std::pair<std::string_view, const char*>, 3> kPrefixes{
        {{"language_model.model.", "model."},
         {"language_model.lm_head.", "lm_head."},
         {"model.language_model.", "model."}}};
    for (const auto& [prefix, ours] : kPrefixes) {
      if (file_name.starts_with(prefix)) return llama_parameter_of(model, ours + file_name.substr(prefix.size()));
    }
    return llama_parameter_of(model, file_name);
  }
};

const config::Registered<Gemma3Family, config::NoOptions> registered_gemma3{families(), "gemma3",
                                                                            "Gemma 3, its text part"};

}  // namespace
}  // namespace gputrain::models
