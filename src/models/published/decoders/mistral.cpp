// Hugging Face's MistralForCausalLM. Without a sliding window it is Llama, and written as Llama.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct MistralFamily final : LlamaLikeFamily {
  explicit MistralFamily(const config::NoOptions&)
      : LlamaLikeFamily(
            {.model_type = "mistral",
             .architecture = "MistralForCausalLM",
             .windowed = WindowedLayers::all,
             .defaults = {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}, {"sliding_window", 4096}}}) {
  }
};

const config::Registered<MistralFamily, config::NoOptions> registered_mistral{families(), "mistral", "Mistral"};

}  // namespace
}  // namespace gputrain::models
