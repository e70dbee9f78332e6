// Hugging Face's LlamaForCausalLM.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct LlamaFamily final : LlamaLikeFamily {
  explicit LlamaFamily(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "llama", .architecture = "LlamaForCausalLM", .has_biases = true}) {}
};

const config::Registered<LlamaFamily, config::NoOptions> registered_llama{families(), "llama", "Llama"};

}  // namespace
}  // namespace gputrain::models
