// Hugging Face's Qwen2ForCausalLM, of Qwen2 and Qwen2.5.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct Qwen2Family final : LlamaLikeFamily {
  explicit Qwen2Family(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "qwen2",
                         .architecture = "Qwen2ForCausalLM",
                         .qkv_bias = true,
                         .windowed = WindowedLayers::some,
                         .defaults = {{"num_key_value_heads", 32},
                                      {"max_position_embeddings", 32768},
                                      {"sliding_window", 4096},
                                      {"max_window_layers", 28}}}) {}
};

const config::Registered<Qwen2Family, config::NoOptions> registered_qwen2{families(), "qwen2", "Qwen2 and 2.5"};

}  // namespace
}  // namespace gputrain::models
