// Hugging Face's MixtralForCausalLM.
#include <array>

#include "llama_like.hpp"

namespace gputrain::models {
namespace {

constexpr ExpertKeys kMixtralExperts{.count = "num_local_experts", .inner = "intermediate_size"};

/// Parts of names: in our parameters, and in Mixtral's files.
constexpr std::array<std::array<const char*, 2>, 5> kNames{{{".mlp.gate.", ".block_sparse_moe.gate."},
                                                            {".mlp.experts.", ".block_sparse_moe.experts."},
                                                            {".gate_proj.", ".w1."},
                                                            {".down_proj.", ".w2."},
                                                            {".up_proj.", ".w3."}}};

std::string renamed(std::string name, size_t from, size_t to) {
  for (const auto& pair : kNames) {
    const std::string old = pair.at(from);
    if (const size_t at = name.find(old); at != std::string::npos) name.replace(at, old.size(), pair.at(to));
  }
  return name;
}

class MixtralFamily final : public LlamaLikeFamily {
 public:
  explicit MixtralFamily(const config::NoOptions&)
      : LlamaLikeFamily({.model_type = "mixtral",
                         .architecture = "MixtralForCausalLM",
                         .windowed = WindowedLayers::all,
                         .experts = &kMixtralExperts,
                         .defaults = {{"num_key_value_heads", 8},
                                      {"max_position_embeddings", 131072},
                                      {"rms_norm_eps", 1e-5},
                                      {"rope_theta", 1e6}}}) {}

  std::string parameter_of(const Model& model, const std::string& file_name) const override {
    return renamed(LlamaLikeFamily::parameter_of(model, file_name), 1, 0);
  }
  std::string file_name_of(const Model&, const std::string& parameter) const override {
    return renamed(parameter, 0, 1);
  }
};

const config::Registered<MixtralFamily, config::NoOptions> registered_mixtral{families(), "mixtral", "Mixtral"};

}  // namespace
}  // namespace gputrain::models
