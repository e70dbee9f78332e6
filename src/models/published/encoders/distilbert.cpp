// Hugging Face's DistilBertModel and its heads.
#include "../activations.hpp"
#include "encoder_family.hpp"

namespace gputrain::models {
namespace {

constexpr double kDistilbertNormEps = 1e-12;  // constant without a key in its config.json

void read_distilbert(EncoderOptions& options, const ConfigReader& reader) {
  auto& [fixed, defaults] = options;
  fixed.add("n_layer", reader.size("n_layers").value_or(6));
  fixed.add("n_head", reader.size("n_heads").value_or(12));
  fixed.add("n_embd", reader.size("dim").value_or(768));
  fixed.add("n_inner", reader.size("hidden_dim").value_or(3072));
  fixed.add("block_size", reader.size("max_position_embeddings").value_or(512));
  fixed.add("position_offset", int64_t{0});
  fixed.add("activation", activation_option(reader, "activation", "gelu"));
  fixed.add("norm_eps", kDistilbertNormEps);
  defaults.add("dropout", reader.number("dropout", 0.1));
  defaults.add("attention_dropout", reader.number("attention_dropout", 0.1));
  defaults.add("head_dropout", reader.number("seq_classif_dropout", 0.2));
}

nlohmann::json distilbert_config(const EncoderSizes& sizes) {
  if (sizes.position_offset != 0 || sizes.norm_eps != kDistilbertNormEps) return nullptr;
  return {{"dim", sizes.channels},
          {"n_layers", sizes.layers},
          {"n_heads", sizes.heads},
          {"hidden_dim", sizes.inner},
          {"activation", activation_function(sizes.activation)},
          {"max_position_embeddings", sizes.positions},
          {"sinusoidal_pos_embds", false},
          {"dropout", sizes.dropout},
          {"attention_dropout", sizes.attention_dropout},
          {"seq_classif_dropout", sizes.head_dropout}};
}

class DistilbertFamily final : public EncoderFamily {
 public:
  explicit DistilbertFamily(const config::NoOptions&)
      : EncoderFamily({.name = "distilbert",
                       .model_type = "distilbert",
                       .architecture = "DistilBert",
                       .read = read_distilbert,
                       .write = distilbert_config}) {}
};

const config::Registered<DistilbertFamily, config::NoOptions> registered_distilbert{families(), "distilbert",
                                                                                    "DistilBERT"};

}  // namespace
}  // namespace gputrain::models
