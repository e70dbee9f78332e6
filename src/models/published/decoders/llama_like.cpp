#include "llama_like.hpp"

#include <algorithm>
#include <string>

#include "decoder.hpp"
#include "rope.hpp"
#include "windows.hpp"

namespace gputrain::models {
namespace {

/// Adds the layers' biases: all of them or none, or only those of queries, keys and values.
void add_biases(SpecOptions& options, const ConfigReader& reader, const LlamaKind& kind) {
  const bool attention = reader.flag("attention_bias", false), mlp = reader.flag("mlp_bias", false);
  if (!kind.has_biases && (attention || mlp)) {
    reader.refuse(std::string(attention ? "'attention_bias" : "'mlp_bias") + ": true' is not supported in this family",
                  "use weights trained without it");
  }
  if (attention != mlp) {
    reader.refuse(std::string(attention ? "'attention_bias: true' without" : "'mlp_bias: true' without") +
                  (attention ? " 'mlp_bias'" : " 'attention_bias'") +
                  " is not supported: all layers have biases, or none");
  }
  options.add("bias", attention);
  if (kind.qkv_bias) options.add("qkv_bias", true);
}

/// Returns the sliding window; none if it is null or not in use.
std::optional<int64_t> window_of(const ConfigReader& reader, const LlamaKind& kind) {
  if (kind.windowed == WindowedLayers::some && !reader.flag("use_sliding_window", false)) return std::nullopt;
  return reader.size("sliding_window");
}

void add_window(SpecOptions& options, const ConfigReader& reader, const LlamaKind& kind) {
  if (kind.windowed == WindowedLayers::none) return reader.expect_flag("use_sliding_window", false);
  const auto window = window_of(reader, kind);
  const int64_t layers = reader.required_size("num_hidden_layers");
  const bool has_all = kind.windowed == WindowedLayers::all;
  const int64_t full = has_all || !window ? 0 : reader.count("max_window_layers").value_or(layers);
  const auto types = layer_types_of(reader, layers, [&](int64_t layer) { return window && layer >= full; });
  const auto expected = window ? kSlidingLayer : kFullLayer;
  if ((has_all || !window) && std::ranges::count(types, expected) != layers) {
    reader.refuse(std::string("'layer_types' does not go with 'sliding_window': all layers are ") + expected);
  }
  if (window) add_windows(options, *window, types);
}

SpecOptions llama_options(const ConfigReader& reader, const LlamaKind& kind, const std::string& where) {
  if (reader.text("hidden_act", "silu") != "silu") reader.refuse("'hidden_act' other than silu is not supported");
  SpecOptions options;
  add_sizes(options, reader);
  add_biases(options, reader, kind);
  add_window(options, reader, kind);
  if (kind.experts != nullptr) add_experts(options, reader, *kind.experts);
  if (kind.qk_norm) options.add("qk_norm", true);
  if (kind.qk_norm_across) options.add("qk_norm_across_heads", true);
  if (kind.norms == NormPlaces::after) options.add("norms", "after");
  if (kind.naming == nn::Naming::phi3) options.add("layout", "phi3");
  options.add("position", "rotary");
  options.add("norm", "rmsnorm");
  options.add("activation", "swiglu");
  options.add("tie_embeddings", reader.flag("tie_word_embeddings", false));
  const Rope rope = rope_of(reader, where);
  if (kind.rotates_part) {
    options.add("partial_rotary_factor", rope.share);
  } else {
    expect_whole_heads(rope);
  }
  add_rope(options, rope, kind.scales_rope);
  options.add("norm_eps", reader.number("rms_norm_eps", 1e-6));
  return options;
}

nlohmann::json window_config(const GptSizes& sizes, const LlamaKind& kind) {
  const Windows windows = windows_in(sizes.windows);
  nlohmann::json config{{"sliding_window", nullptr}};
  if (windows.layers > 0) config["sliding_window"] = windows.size;
  if (kind.windowed == WindowedLayers::all) return config;
  const auto types = layer_types_in(sizes.windows);
  config["use_sliding_window"] = windows.layers > 0;
  config["layer_types"] = types;
  // Readers older than layer_types identify layers by their number.
  config["max_window_layers"] = std::ranges::find(types, kSlidingLayer) - types.begin();
  return config;
}

nlohmann::json llama_config(const GptSpec& spec, const GptSizes& sizes, const LlamaKind& kind) {
  nlohmann::json config = sizes_config(sizes, kind.model_type, kind.architecture);
  config["hidden_act"] = "silu";
  config["attention_dropout"] = spec.dropout;
  config["rms_norm_eps"] = spec.norm_eps;
  config["rope_theta"] = spec.rope_theta;
  config["rope_scaling"] = rope_scaling_config(spec.rope_scaling, sizes);
  if (kind.rotates_part) config["partial_rotary_factor"] = spec.partial_rotary_factor;
  if (kind.windowed != WindowedLayers::none) config.update(window_config(sizes, kind));
  if (kind.experts != nullptr) config.update(experts_config(spec, sizes, *kind.experts));
  if (!kind.has_biases) return config;
  config["attention_bias"] = sizes.bias;
  config["mlp_bias"] = sizes.bias;
  return config;
}

/// Returns whether a block computes what the family's does, apart from biases and windows.
bool has_blocks_of(const LlamaKind& kind, const GptSpec& spec, const GptSizes& sizes) {
  const bool has_plain_norms =
      !spec.parallel_residual && sizes.rmsnorm && !sizes.norms_from_one && sizes.norm_places == kind.norms;
  const auto divisor = static_cast<double>(sizes.head_channels);
  const bool has_plain_attention = !spec.rope_local_theta && spec.query_pre_attn_scalar.value_or(divisor) == divisor;
  const bool has_rope =
      (kind.rotates_part || spec.partial_rotary_factor == 1) && (kind.scales_rope || spec.rope_scaling.type == "none");
  return has_rope && has_plain_norms && has_plain_attention && spec.activation == "swiglu" && !spec.scale_embeddings;
}

}  // namespace

PublishedModel LlamaLikeFamily::model_of(const nlohmann::json& config, const std::string& where) const {
  nlohmann::json whole = kind_.defaults;
  whole.update(config);
  return {"gpt", llama_options(ConfigReader(whole, where), kind_, where).list};
}

bool LlamaLikeFamily::names(const Model& model) const {
  const auto* gpt = dynamic_cast<const Gpt*>(&model);
  if (gpt == nullptr || gpt->sizes().naming != kind_.naming || gpt->sizes().norms_from_one) return false;
  const GptSizes& sizes = gpt->sizes();
  if ((gpt->spec().n_expert > 0) != (kind_.experts != nullptr)) return false;
  const bool has_windows = windows_in(sizes.windows).layers > 0;
  // Llama and Mistral differ only in the window.
  const bool is_either =
      kind_.experts == nullptr && kind_.naming == nn::Naming::llama && kind_.windowed != WindowedLayers::some;
  if (is_either && has_windows != (kind_.windowed == WindowedLayers::all)) return false;
  const bool has_qkv_bias_alone = sizes.qkv_bias && !sizes.bias;
  if (gpt->spec().qk_norm_across_heads != kind_.qk_norm_across) return false;
  return gpt->spec().qk_norm == kind_.qk_norm && has_qkv_bias_alone == kind_.qkv_bias;
}

nlohmann::json LlamaLikeFamily::config_of(const Model& model) const {
  const auto& gpt = dynamic_cast<const Gpt&>(model);
  const GptSizes& sizes = gpt.sizes();
  const bool has_other_biases = sizes.bias ? !kind_.has_biases || !sizes.qkv_bias : sizes.qkv_bias != kind_.qkv_bias;
  const int64_t windowed = windows_in(sizes.windows).layers;
  const bool has_other_layers = kind_.windowed == WindowedLayers::all && windowed > 0 && windowed < sizes.layers;
  const bool has_other_experts = kind_.experts != nullptr && !has_experts_of(*kind_.experts, gpt.spec(), sizes);
  if (has_other_biases || has_other_layers || has_other_experts || !has_blocks_of(kind_, gpt.spec(), sizes))
    return nullptr;
  return completed(llama_config(gpt.spec(), sizes, kind_), gpt);
}

std::string LlamaLikeFamily::parameter_of(const Model& model, const std::string& file_name) const {
  return llama_parameter_of(model, file_name);
}

}  // namespace gputrain::models
