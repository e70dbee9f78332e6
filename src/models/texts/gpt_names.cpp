#include "gpt_names.hpp"

namespace gputrain::models {
namespace {

constexpr GptNames kGpt2Names{
    "transformer.wte", "transformer.wpe", "transformer.h.", "transformer.ln_f", "lm_head", "attn", "mlp"};
constexpr GptNames kLlamaNames{"model.embed_tokens", nullptr, "model.layers.", "model.norm", "lm_head",
                               "self_attn",          "mlp"};

constexpr GptNames kNeoxNames{
    "gpt_neox.embed_in", nullptr, "gpt_neox.layers.", "gpt_neox.final_layer_norm", "embed_out", "attention", "mlp"};

}  // namespace

const GptNames& names_of(nn::Naming naming) {
  if (naming == nn::Naming::gpt2) return kGpt2Names;
  return naming == nn::Naming::gpt_neox ? kNeoxNames : kLlamaNames;
}

BlockNormNames names_of_norms(nn::Naming naming, NormPlaces places) {
  if (naming == nn::Naming::gpt2) return {"ln_1", nullptr, "ln_2", nullptr};
  switch (places) {
    case NormPlaces::before:  // the second is named after its place in the block
      return {"input_layernorm", nullptr, "post_attention_layernorm", nullptr};
    case NormPlaces::after:
      return {nullptr, "post_attention_layernorm", nullptr, "post_feedforward_layernorm"};
    case NormPlaces::both:
      break;
  }
  return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
}

}  // namespace gputrain::models
