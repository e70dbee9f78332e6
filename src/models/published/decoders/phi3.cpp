// Hugging Face's Phi3ForCausalLM, of Phi-3 and Phi-4, without longrope.
#include "llama_like.hpp"

namespace gputrain::models {
namespace {

struct Phi3Family final : LlamaLikeFamily {
  explicit Phi3Family(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "phi3",
                         .architecture = "Phi3ForCausalLM",
                         .windowed = WindowedLayers::all,
                         .naming = nn::Naming::phi3,
                         .rotates_part = true,
                         .scales_rope = false,
                         .defaults = {{"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-5}}}) {}
};

const config::Registered<Phi3Family, config::NoOptions> registered_phi3{families(), "phi3", "Phi-3 and Phi-4"};

}  // namespace
}  // namespace gputrain::models
