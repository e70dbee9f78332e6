// Hugging Face's Qwen3MoeForCausalLM.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

constexpr ExpertKeys kQwenExperts{.count = "num_experts",
                                  .inner = "moe_intermediate_size",
                                  .scales_to_one = "norm_topk_prob",
                                  .has_dense_layers = true};

struct Qwen3MoeFamily final : LlamaLikeFamily {
  explicit Qwen3MoeFamily(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "qwen3_moe",
                         .architecture = "Qwen3MoeForCausalLM",
                         .qk_norm = true,
                         .experts = &kQwenExperts,
                         .defaults = {{"num_key_value_heads", 4}, {"max_position_embeddings", 32768}}}) {}
};

const config::Registered<Qwen3MoeFamily, config::NoOptions> registered_qwen3_moe{families(), "qwen3_moe",
                                                                                 "Qwen3's mixtures of experts"};

}  // namespace
}  // namespace gputrain::models
