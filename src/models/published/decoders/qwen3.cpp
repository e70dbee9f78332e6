// Hugging Face's Qwen3ForCausalLM.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct Qwen3Family final : LlamaLikeFamily {
  explicit Qwen3Family(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "qwen3",
                         .architecture = "Qwen3ForCausalLM",
                         .qk_norm = true,
                         .windowed = WindowedLayers::some,
                         .defaults = {{"num_key_value_heads", 32},
                                      {"head_dim", 128},
                                      {"max_position_embeddings", 32768},
                                      {"sliding_window", 4096},
                                      {"max_window_layers", 28}}}) {}
};

const config::Registered<Qwen3Family, config::NoOptions> registered_qwen3{families(), "qwen3", "Qwen3"};

}  // namespace
}  // namespace gputrain::models
