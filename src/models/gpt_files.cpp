// How a Gpt and the files of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM go together.
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

}  // namespace

nlohmann::json Gpt::ecosystem_config() const {
  if (sizes_.family == GptFamily::gpt2) {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", sizes_.vocabulary},
            {"n_positions", sizes_.positions},
            {"n_embd", sizes_.channels},
            {"n_layer", sizes_.layers},
            {"n_head", sizes_.heads},
            {"n_inner", sizes_.inner},
            {"activation_function", sizes_.activation == ops::Activation::gelu ? "gelu" : "gelu_new"},
            {"embd_pdrop", spec_.dropout},
            {"attn_pdrop", spec_.dropout},
            {"resid_pdrop", spec_.dropout},
            {"layer_norm_epsilon", spec_.norm_eps},
            {"tie_word_embeddings", spec_.tie_embeddings}};
  }
  if (sizes_.family == GptFamily::llama) {
    return {{"architectures", {"LlamaForCausalLM"}},   {"model_type", "llama"},
            {"vocab_size", sizes_.vocabulary},         {"max_position_embeddings", sizes_.positions},
            {"hidden_size", sizes_.channels},          {"intermediate_size", sizes_.inner},
            {"num_hidden_layers", sizes_.layers},      {"num_attention_heads", sizes_.heads},
            {"num_key_value_heads", sizes_.key_heads}, {"hidden_act", "silu"},
            {"attention_bias", sizes_.bias},           {"mlp_bias", sizes_.bias},
            {"attention_dropout", spec_.dropout},      {"rms_norm_eps", spec_.norm_eps},
            {"rope_theta", spec_.rope_theta},          {"tie_word_embeddings", spec_.tie_embeddings}};
  }
  return nullptr;
}

std::string Gpt::parameter_of(const std::string& file_name) const {
  if (spec_.tie_embeddings && file_name == "lm_head.weight") return {};
  if (sizes_.family == GptFamily::llama) return file_name.ends_with(".rotary_emb.inv_freq") ? "" : file_name;
  // The causal mask, which older files hold as if it were a weight.
  if (ends_with_any(file_name, {".attn.bias", ".attn.masked_bias"})) return {};
  // Files of the bare transformer lack the prefix.
  const bool bare = file_name.starts_with("wte.") || file_name.starts_with("wpe.") || file_name.starts_with("h.") ||
                    file_name.starts_with("ln_f.");
  return bare ? "transformer." + file_name : file_name;
}

}  // namespace gputrain::models
