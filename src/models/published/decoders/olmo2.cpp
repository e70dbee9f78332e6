// Hugging Face's Olmo2ForCausalLM.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct Olmo2Family final : LlamaLikeFamily {
  explicit Olmo2Family(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "olmo2",
                         .architecture = "Olmo2ForCausalLM",
                         .qk_norm = true,
                         .qk_norm_across = true,
                         .norms = NormPlaces::after,
                         .defaults = {{"rms_norm_eps", 1e-5}}}) {}
};

const config::Registered<Olmo2Family, config::NoOptions> registered_olmo2{families(), "olmo2", "OLMo 2"};

}  // namespace
}  // namespace gputrain::models
