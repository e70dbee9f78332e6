#include "encoder_names.hpp"

#include <algorithm>
#include <array>

#include "gputrain/core/error.hpp"

namespace gputrain::models {
namespace {

constexpr EncoderVariant kBert{.name = "bert",
                               .root = "bert.",
                               .tokens = "bert.embeddings.word_embeddings",
                               .positions = "bert.embeddings.position_embeddings",
                               .types = "bert.embeddings.token_type_embeddings",
                               .embedding_norm = "bert.embeddings.LayerNorm",
                               .blocks = "bert.encoder.layer.",
                               .attention = "attention",
                               .attention_norm = "attention.output.LayerNorm",
                               .feed_forward = "",
                               .feed_forward_norm = "output.LayerNorm",
                               .mlm_dense = "cls.predictions.transform.dense",
                               .mlm_norm = "cls.predictions.transform.LayerNorm",
                               .mlm_bias = "cls.predictions",
                               .mlm_weight = "cls.predictions.decoder",
                               .pooled_dense = "bert.pooler.dense",
                               .pooled_classes = "classifier",
                               .tagged_classes = "classifier",
                               .in_blocks = nn::Naming::bert,
                               .of_classifier = ops::Activation::tanh,
                               .token_types = 2};

constexpr EncoderVariant kRoberta{.name = "roberta",
                                  .root = "roberta.",
                                  .tokens = "roberta.embeddings.word_embeddings",
                                  .positions = "roberta.embeddings.position_embeddings",
                                  .types = "roberta.embeddings.token_type_embeddings",
                                  .embedding_norm = "roberta.embeddings.LayerNorm",
                                  .blocks = "roberta.encoder.layer.",
                                  .attention = "attention",
                                  .attention_norm = "attention.output.LayerNorm",
                                  .feed_forward = "",
                                  .feed_forward_norm = "output.LayerNorm",
                                  .mlm_dense = "lm_head.dense",
                                  .mlm_norm = "lm_head.layer_norm",
                                  .mlm_bias = "lm_head",
                                  .mlm_weight = "lm_head.decoder",
                                  .pooled_dense = "classifier.dense",
                                  .pooled_classes = "classifier.out_proj",
                                  .tagged_classes = "classifier",
                                  .in_blocks = nn::Naming::bert,
                                  .of_classifier = ops::Activation::tanh,
                                  .of_tokens = ops::Activation::gelu,
                                  .token_types = 1,
                                  .position_offset = 2,
                                  .drops_pooled = true};

constexpr EncoderVariant kDistilbert{.name = "distilbert",
                                     .root = "distilbert.",
                                     .tokens = "distilbert.embeddings.word_embeddings",
                                     .positions = "distilbert.embeddings.position_embeddings",
                                     .embedding_norm = "distilbert.embeddings.LayerNorm",
                                     .blocks = "distilbert.transformer.layer.",
                                     .attention = "attention",
                                     .attention_norm = "sa_layer_norm",
                                     .feed_forward = "ffn",
                                     .feed_forward_norm = "output_layer_norm",
                                     .mlm_dense = "vocab_transform",
                                     .mlm_norm = "vocab_layer_norm",
                                     .mlm_bias = "vocab_projector",
                                     .mlm_weight = "vocab_projector",
                                     .pooled_dense = "pre_classifier",
                                     .pooled_classes = "classifier",
                                     .tagged_classes = "classifier",
                                     .in_blocks = nn::Naming::distilbert,
                                     .of_classifier = ops::Activation::relu,
                                     .drops_attended = false};

constexpr EncoderVariant kModernbert{.name = "modernbert",
                                     .root = "model.",
                                     .tokens = "model.embeddings.tok_embeddings",
                                     .embedding_norm = "model.embeddings.norm",
                                     .blocks = "model.layers.",
                                     .final_norm = "model.final_norm",
                                     .attention = "attn",
                                     .attention_norm = "attn_norm",
                                     .feed_forward = "mlp",
                                     .feed_forward_norm = "mlp_norm",
                                     .mlm_dense = "head.dense",
                                     .mlm_norm = "head.norm",
                                     .mlm_bias = "decoder",
                                     .mlm_weight = "decoder",
                                     .pooled_dense = "head.dense",
                                     .pooled_norm = "head.norm",
                                     .pooled_classes = "classifier",
                                     .tagged_dense = "head.dense",
                                     .tagged_norm = "head.norm",
                                     .tagged_classes = "classifier",
                                     .in_blocks = nn::Naming::modernbert,
                                     .of_classifier = ops::Activation::gelu,
                                     .of_tokens = ops::Activation::gelu,
                                     .has_norms_before = true};

/// RoBERTa with other tokens.
constexpr EncoderVariant roberta_named(const char* name) {
  EncoderVariant variant = kRoberta;
  variant.name = name;
  return variant;
}

constexpr std::array<EncoderVariant, 6> kVariants{
    kBert, kRoberta, roberta_named("xlm_roberta"), roberta_named("camembert"), kDistilbert, kModernbert};

}  // namespace

const EncoderVariant& encoder_variant(std::string_view name) {
  const auto found = std::ranges::find(kVariants, name, &EncoderVariant::name);
  GPUTRAIN_ASSERT(found != kVariants.end(), "a job names a variant that there is");
  return *found;
}

std::vector<std::string> encoder_variant_names() {
  std::vector<std::string> names;
  for (const EncoderVariant& variant : kVariants) names.emplace_back(variant.name);
  return names;
}

HeadNames head_names_of(const EncoderVariant& names, HeadKind head) {
  switch (head) {
    case HeadKind::mlm:
      return {names.mlm_dense, names.mlm_norm, names.mlm_bias};
    case HeadKind::classifier:
      return {names.pooled_dense, names.pooled_norm, names.pooled_classes};
    case HeadKind::tagger:
      return {names.tagged_dense, names.tagged_norm, names.tagged_classes};
    case HeadKind::embedder:
      break;
  }
  return {};
}

}  // namespace gputrain::models
