// Hugging Face's MistralForCausalLM, for texts within its sliding window.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct MistralFamily final : LlamaLikeFamily {
  explicit MistralFamily(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "mistral",
                         .architecture = "MistralForCausalLM",
                         .reads_window = true,
                         .is_written = false}) {}
};

const config::Registered<MistralFamily, config::NoOptions> registered_mistral{families(), "mistral", "Mistral"};

}  // namespace
}  // namespace gputrain::models
