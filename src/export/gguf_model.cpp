#include "gguf_model.hpp"

#include <array>
#include <cmath>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

using nlohmann::json;
using Renames = std::vector<std::pair<std::string, std::string>>;

const std::map<std::string, std::string> kArchitectures{
    {"llama", "llama"}, {"mistral", "llama"},      {"mixtral", "llama"}, {"qwen2", "qwen2"},
    {"qwen3", "qwen3"}, {"qwen3_moe", "qwen3moe"}, {"phi3", "phi3"},     {"gemma3_text", "gemma3"},
    {"gpt2", "gpt2"},   {"gpt_neox", "gptneox"}};

const Renames kLlama{{"model.embed_tokens.", "token_embd."},
                     {"model.norm.", "output_norm."},
                     {"lm_head.", "output."},
                     {"model.layers.", "blk."},
                     {".input_layernorm.", ".attn_norm."},
                     {".self_attn.q_proj.", ".attn_q."},
                     {".self_attn.k_proj.", ".attn_k."},
                     {".self_attn.v_proj.", ".attn_v."},
                     {".self_attn.qkv_proj.", ".attn_qkv."},
                     {".self_attn.o_proj.", ".attn_output."},
                     {".self_attn.q_norm.", ".attn_q_norm."},
                     {".self_attn.k_norm.", ".attn_k_norm."},
                     {".mlp.gate_proj.", ".ffn_gate."},
                     {".mlp.up_proj.", ".ffn_up."},
                     {".mlp.gate_up_proj.", ".ffn_up."},
                     {".mlp.down_proj.", ".ffn_down."},
                     {".mlp.gate.", ".ffn_gate_inp."},
                     {".mlp.experts.gate_proj.", ".ffn_gate_exps."},
                     {".mlp.experts.up_proj.", ".ffn_up_exps."},
                     {".mlp.experts.down_proj.", ".ffn_down_exps."},
                     {".block_sparse_moe.gate.", ".ffn_gate_inp."},
                     {".block_sparse_moe.experts.w1.", ".ffn_gate_exps."},
                     {".block_sparse_moe.experts.w3.", ".ffn_up_exps."},
                     {".block_sparse_moe.experts.w2.", ".ffn_down_exps."}};
const Renames kNormAfterAttention{{".post_attention_layernorm.", ".ffn_norm."}};
const Renames kFourNorms{{".post_attention_layernorm.", ".post_attention_norm."},
                         {".pre_feedforward_layernorm.", ".ffn_norm."},
                         {".post_feedforward_layernorm.", ".post_ffw_norm."}};
const Renames kGpt2{{"transformer.wte.", "token_embd."},
                    {"transformer.wpe.", "position_embd."},
                    {"transformer.ln_f.", "output_norm."},
                    {"lm_head.", "output."},
                    {"transformer.h.", "blk."},
                    {".ln_1.", ".attn_norm."},
                    {".attn.c_attn.", ".attn_qkv."},
                    {".attn.c_proj.", ".attn_output."},
                    {".ln_2.", ".ffn_norm."},
                    {".mlp.c_fc.", ".ffn_up."},
                    {".mlp.c_proj.", ".ffn_down."}};
const Renames kGptNeox{{"gpt_neox.embed_in.", "token_embd."},
                       {"gpt_neox.final_layer_norm.", "output_norm."},
                       {"embed_out.", "output."},
                       {"gpt_neox.layers.", "blk."},
                       {".input_layernorm.", ".attn_norm."},
                       {".post_attention_layernorm.", ".ffn_norm."},
                       {".attention.query_key_value.", ".attn_qkv."},
                       {".attention.dense.", ".attn_output."},
                       {".mlp.dense_h_to_4h.", ".ffn_up."},
                       {".mlp.dense_4h_to_h.", ".ffn_down."}};

bool replace(std::string& name, const Renames& renames) {
  bool has_replaced = false;
  for (const auto& [from, to] : renames) {
    const size_t at = name.find(from);
    if (at == std::string::npos) continue;
    name.replace(at, from.size(), to);
    has_replaced = true;
  }
  return has_replaced;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::usage, {.what = what, .where = "--format gguf", .hint = hint});
}

/// Reorders channels: Llama's files pair channel i of a head with channel i + half; GGUF pairs neighbours.
at::Tensor with_neighbours_paired(const at::Tensor& tensor, int64_t heads) {
  const auto rest = tensor.sizes().slice(1);
  std::vector<int64_t> apart{heads, 2, tensor.size(0) / heads / 2};
  apart.insert(apart.end(), rest.begin(), rest.end());
  return tensor.reshape(apart).transpose(1, 2).reshape(tensor.sizes());
}

/// Reorders rows: GPT-NeoX's files have query, key and value of a head after each other; GGUF has all queries first.
at::Tensor by_kind(const at::Tensor& tensor, int64_t heads) {
  const auto rest = tensor.sizes().slice(1);
  std::vector<int64_t> apart{heads, 3, tensor.size(0) / heads / 3};
  apart.insert(apart.end(), rest.begin(), rest.end());
  return tensor.reshape(apart).transpose(0, 1).reshape(tensor.sizes());
}

/// Joins each matrix that files have once per expert to one tensor [experts, ...], named ".experts." without a number.
checkpoint::NamedTensors with_experts_together(const checkpoint::NamedTensors& published) {
  checkpoint::NamedTensors together;
  std::map<std::string, std::vector<at::Tensor>> experts;
  static constexpr std::string_view kMark = ".experts.";
  for (const auto& [name, tensor] : published) {
    const size_t mark = name.find(kMark);
    if (mark == std::string::npos) {
      together.emplace_back(name, tensor);
      continue;
    }
    const size_t number = mark + kMark.size();
    experts[name.substr(0, number) + name.substr(name.find('.', number) + 1)].push_back(tensor);
  }
  for (const auto& [name, tensors] : experts) together.emplace_back(name, at::stack(tensors));
  return together;
}

/// Throws Error(usage) for options that readers ignore: they compute each architecture in one way.
void refuse_what_readers_do_not_compute(const json& config, const std::string& type) {
  const auto other = [](const std::string& what) {
    refuse("readers of GGUF compute no " + what + " in this architecture");
  };
  const json window = config.value("sliding_window", json());
  const bool is_short = window.is_number() && window < config.value("max_position_embeddings", 0);
  const bool slides = type == "mistral" || type == "mixtral" || config.value("use_sliding_window", false);
  if (slides && is_short) other("attention to a window");
  if (type == "gpt_neox" && config.value("tie_word_embeddings", false)) other("tied embeddings");
  const std::string activation = config.value("activation_function", config.value("hidden_act", "silu"));
  const bool is_known = activation.starts_with("gelu") || activation == "silu";
  if (!is_known) other("activation '" + activation + "'");
  if (type == "qwen3_moe" && !config.value("norm_topk_prob", false)) other("weights of experts without the sum 1");
  if (!config.value("mlp_only_layers", json::array()).empty()) other("layers without experts beside those with them");
  if (type != "gemma3_text") return;
  const double scalar = config.value("query_pre_attn_scalar", 0.0);
  const double share = config.value("hidden_size", 0.0) / config.value("num_attention_heads", 1.0);  // largest model
  if (scalar != config.value("head_dim", 0.0) && scalar != share) other("scale by query_pre_attn_scalar");
  const json layers = config.value("layer_types", json::array());
  for (size_t i = 0; i < layers.size(); ++i)
    if ((layers[i] == "full_attention") != (i % 6 == 5)) other("layer_types but five windows before each whole one");
}

}  // namespace

GgufModel::GgufModel(const json& config) : config_(config), type_(config.value("model_type", "")) {
  const auto found = kArchitectures.find(type_);
  if (found == kArchitectures.end()) refuse("no GGUF architecture is known for model_type '" + type_ + "'");
  architecture_ = found->second;
  heads_ = size(type_ == "gpt2" ? "n_head" : "num_attention_heads");
  key_heads_ = config.value("num_key_value_heads", heads_);
  refuse_what_readers_do_not_compute(config, type_);
  head_channels_ = config.value("head_dim", size(type_ == "gpt2" ? "n_embd" : "hidden_size") / heads_);
}

int64_t GgufModel::size(const char* key) const { return config_.at(key).get<int64_t>(); }
double GgufModel::number(const char* key) const { return config_.at(key).get<double>(); }

json GgufModel::rope() const {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = config_.find(key);
    if (found == config_.end() || !found->is_object()) continue;
    return found->contains("full_attention") ? found->at("full_attention") : *found;
  }
  return json::object();
}

std::vector<std::pair<std::string, GgufValue>> GgufModel::values() const {
  std::vector<std::pair<std::string, GgufValue>> values;
  const auto add = [&](const std::string& key, const GgufValue& value) {
    values.emplace_back(architecture_ + "." + key, value);
  };
  const auto add_size = [&](const std::string& key, int64_t value) { add(key, static_cast<uint32_t>(value)); };
  const bool is_gpt2 = type_ == "gpt2", is_neox = type_ == "gpt_neox";
  add_size("context_length", size(is_gpt2 ? "n_positions" : "max_position_embeddings"));
  add_size("embedding_length", size(is_gpt2 ? "n_embd" : "hidden_size"));
  add_size("block_count", size(is_gpt2 ? "n_layer" : "num_hidden_layers"));
  add_size("feed_forward_length", size(is_gpt2 ? "n_inner" : "intermediate_size"));
  add_size("vocab_size", size("vocab_size"));
  add_size("attention.head_count", heads_);
  add_size("attention.head_count_kv", key_heads_);
  if (is_gpt2 || is_neox) {
    const char* key = is_gpt2 ? "layer_norm_epsilon" : "layer_norm_eps";
    add("attention.layer_norm_epsilon", static_cast<float>(number(key)));
  } else {
    add("attention.layer_norm_rms_epsilon", static_cast<float>(number("rms_norm_eps")));
    add_size("attention.key_length", head_channels_);
    add_size("attention.value_length", head_channels_);
  }
  if (config_.contains("num_experts_per_tok")) {
    add_size("expert_count", size(type_ == "mixtral" ? "num_local_experts" : "num_experts"));
    add_size("expert_used_count", size("num_experts_per_tok"));
    if (type_ != "mixtral") add_size("expert_feed_forward_length", size("moe_intermediate_size"));
  }
  if (is_neox) add("use_parallel_residual", config_.value("use_parallel_residual", true));
  if (const auto window = config_.find("sliding_window"); window != config_.end() && window->is_number())
    add_size("attention.sliding_window", window->get<int64_t>());
  if (!is_gpt2) add_rope(values);
  return values;
}

void GgufModel::add_rope(std::vector<std::pair<std::string, GgufValue>>& values) const {
  const auto add = [&](const std::string& key, const GgufValue& value) {
    values.emplace_back(architecture_ + ".rope." + key, value);
  };
  const json rope = this->rope();
  const double part =
      rope.value("partial_rotary_factor", config_.value("partial_rotary_factor", config_.value("rotary_pct", 1.0)));
  const double theta = rope.value("rope_theta", config_.value("rope_theta", config_.value("rotary_emb_base", 10000.0)));
  add("dimension_count", static_cast<uint32_t>(part * static_cast<double>(head_channels_)));
  add("freq_base", static_cast<float>(theta));
  const std::string type = rope.value("rope_type", "default");
  if (type == "llama3" && architecture_ != "llama") refuse("readers of GGUF compute rope_type llama3 in Llamas alone");
  if (type == "default" || type == "llama3") return;  // llama3 is stored as a tensor
  add("scaling.type", type);
  add("scaling.factor", static_cast<float>(rope.at("factor").get<double>()));
  if (type == "yarn" && rope.contains("original_max_position_embeddings"))
    add("scaling.original_context_length", rope["original_max_position_embeddings"].get<uint32_t>());
}

std::string GgufModel::name_of(const std::string& published) const {
  std::string name = published;
  bool is_known = false;
  if (type_ == "gpt2") {
    is_known = replace(name, kGpt2);
  } else if (type_ == "gpt_neox") {
    is_known = replace(name, kGptNeox);
  } else {
    is_known = replace(name, kLlama);
    is_known |= replace(name, type_ == "gemma3_text" ? kFourNorms : kNormAfterAttention);
  }
  if (!is_known) refuse("no GGUF name is known for tensor '" + published + "'");
  return name;
}

at::Tensor GgufModel::stored(const std::string& published, const at::Tensor& tensor) const {
  if (architecture_ == "llama" && published.find(".q_proj.") != std::string::npos)
    return with_neighbours_paired(tensor, heads_);
  if (architecture_ == "llama" && published.find(".k_proj.") != std::string::npos)
    return with_neighbours_paired(tensor, key_heads_);
  if (type_ == "gemma3_text" && published.ends_with("norm.weight")) return tensor + 1;
  if (type_ == "gpt_neox" && published.find(".query_key_value.") != std::string::npos) return by_kind(tensor, heads_);
  const bool is_dense = published.find(".c_") != std::string::npos && tensor.dim() == 2;
  return type_ == "gpt2" && is_dense ? tensor.t() : tensor;
}

checkpoint::NamedTensors GgufModel::tensors(const checkpoint::NamedTensors& published) const {
  checkpoint::NamedTensors tensors;
  for (const auto& [name, tensor] : with_experts_together(published))
    tensors.emplace_back(name_of(name), stored(name, tensor));
  const json rope = this->rope();
  if (rope.value("rope_type", "default") != "llama3") return tensors;
  // Divisor of each frequency (arXiv:2407.21783; as transformers computes it).
  const double base = rope.value("rope_theta", config_.value("rope_theta", 10000.0)), factor = rope.at("factor"),
               low = rope.at("low_freq_factor"), high = rope.at("high_freq_factor"),
               positions = rope.at("original_max_position_embeddings");
  std::vector<float> divisors;
  for (int64_t i = 0; i < head_channels_ / 2; ++i) {
    const double turns = positions *
                         std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_channels_)) /
                         (2 * std::acos(-1.0));
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  tensors.emplace_back("rope_freqs.weight", at::tensor(divisors));
  return tensors;
}

}  // namespace gputrain::app
