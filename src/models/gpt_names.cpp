#include "gpt_names.hpp"

namespace gputrain::models {
namespace {

constexpr GptNames kGpt2Names{
    "transformer.wte", "transformer.wpe", "transformer.h.", "transformer.ln_f", "lm_head", "attn", "mlp"};
constexpr GptNames kLlamaNames{"model.embed_tokens", nullptr, "model.layers.", "model.norm", "lm_head",
                               "self_attn",          "mlp"};

}  // namespace

const GptNames& names_of(nn::Naming naming) { return naming == nn::Naming::gpt2 ? kGpt2Names : kLlamaNames; }

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
