// Maps a Gpt to the files of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM.
#include <nlohmann/json.hpp>

#include "gpt.hpp"

namespace gputrain::models {
namespace {

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
          {"activation_function", sizes.activation == ops::Activation::gelu ? "gelu" : "gelu_new"},
          {"embd_pdrop", spec.dropout},
          {"attn_pdrop", spec.dropout},
          {"resid_pdrop", spec.dropout},
          {"layer_norm_epsilon", spec.norm_eps}};
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

}  // namespace

nlohmann::json Gpt::ecosystem_config() const {
  nlohmann::json config;
  if (sizes_.family == GptFamily::gpt2) config = gpt2_config(spec_, sizes_);
  if (sizes_.family == GptFamily::llama) config = llama_config(spec_, sizes_);
  if (config.is_null()) return config;
  config["vocab_size"] = sizes_.vocabulary;
  config["tie_word_embeddings"] = spec_.tie_embeddings;
  // Only the tokenizer knows which tokens begin and end a text; a reader's defaults would be wrong.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config;
}

std::string Gpt::parameter_of(const std::string& file_name) const {
  if (spec_.tie_embeddings && file_name == "lm_head.weight") return {};
  if (sizes_.family == GptFamily::llama) return file_name.ends_with(".rotary_emb.inv_freq") ? "" : file_name;
  // Older files store the causal mask like a weight.
  if (ends_with_any(file_name, {".attn.bias", ".attn.masked_bias"})) return {};
  // Files of the bare transformer have no prefix.
  const bool bare = file_name.starts_with("wte.") || file_name.starts_with("wpe.") || file_name.starts_with("h.") ||
                    file_name.starts_with("ln_f.");
  return bare ? "transformer." + file_name : file_name;
}

}  // namespace gputrain::models
