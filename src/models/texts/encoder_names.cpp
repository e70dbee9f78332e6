#include "encoder_names.hpp"

namespace gputrain::models {
namespace {

constexpr EncoderNames kBertNames{.root = "bert.",
                                  .tokens = "bert.embeddings.word_embeddings",
                                  .positions = "bert.embeddings.position_embeddings",
                                  .types = "bert.embeddings.token_type_embeddings",
                                  .embedding_norm = "bert.embeddings.LayerNorm",
                                  .blocks = "bert.encoder.layer.",
                                  .final_norm = nullptr,
                                  .attention = "attention",
                                  .attention_norm = "attention.output.LayerNorm",
                                  .feed_forward = "",
                                  .feed_forward_norm = "output.LayerNorm",
                                  .mlm_dense = "cls.predictions.transform.dense",
                                  .mlm_norm = "cls.predictions.transform.LayerNorm",
                                  .mlm_bias = "cls.predictions",
                                  .pooled_dense = "bert.pooler.dense",
                                  .pooled_norm = nullptr,
                                  .pooled_classes = "classifier",
                                  .tagged_dense = nullptr,
                                  .tagged_norm = nullptr,
                                  .tagged_classes = "classifier"};

constexpr EncoderNames kRobertaNames{.root = "roberta.",
                                     .tokens = "roberta.embeddings.word_embeddings",
                                     .positions = "roberta.embeddings.position_embeddings",
                                     .types = "roberta.embeddings.token_type_embeddings",
                                     .embedding_norm = "roberta.embeddings.LayerNorm",
                                     .blocks = "roberta.encoder.layer.",
                                     .final_norm = nullptr,
                                     .attention = "attention",
                                     .attention_norm = "attention.output.LayerNorm",
                                     .feed_forward = "",
                                     .feed_forward_norm = "output.LayerNorm",
                                     .mlm_dense = "lm_head.dense",
                                     .mlm_norm = "lm_head.layer_norm",
                                     .mlm_bias = "lm_head",
                                     .pooled_dense = "classifier.dense",
                                     .pooled_norm = nullptr,
                                     .pooled_classes = "classifier.out_proj",
                                     .tagged_dense = nullptr,
                                     .tagged_norm = nullptr,
                                     .tagged_classes = "classifier"};

constexpr EncoderNames kDistilbertNames{.root = "distilbert.",
                                        .tokens = "distilbert.embeddings.word_embeddings",
                                        .positions = "distilbert.embeddings.position_embeddings",
                                        .types = nullptr,
                                        .embedding_norm = "distilbert.embeddings.LayerNorm",
                                        .blocks = "distilbert.transformer.layer.",
                                        .final_norm = nullptr,
                                        .attention = "attention",
                                        .attention_norm = "sa_layer_norm",
                                        .feed_forward = "ffn",
                                        .feed_forward_norm = "output_layer_norm",
                                        .mlm_dense = "vocab_transform",
                                        .mlm_norm = "vocab_layer_norm",
                                        .mlm_bias = "vocab_projector",
                                        .pooled_dense = "pre_classifier",
                                        .pooled_norm = nullptr,
                                        .pooled_classes = "classifier",
                                        .tagged_dense = nullptr,
                                        .tagged_norm = nullptr,
                                        .tagged_classes = "classifier"};

constexpr EncoderNames kModernbertNames{.root = "model.",
                                        .tokens = "model.embeddings.tok_embeddings",
                                        .positions = nullptr,
                                        .types = nullptr,
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
                                        .pooled_dense = "head.dense",
                                        .pooled_norm = "head.norm",
                                        .pooled_classes = "classifier",
                                        .tagged_dense = "head.dense",
                                        .tagged_norm = "head.norm",
                                        .tagged_classes = "classifier"};

}  // namespace

const EncoderNames& encoder_names_of(EncoderVariant variant) {
  if (is_roberta(variant)) return kRobertaNames;
  if (variant == EncoderVariant::distilbert) return kDistilbertNames;
  return variant == EncoderVariant::modernbert ? kModernbertNames : kBertNames;
}

HeadNames head_names_of(EncoderVariant variant, HeadKind head) {
  const EncoderNames& names = encoder_names_of(variant);
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
