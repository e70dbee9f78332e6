// Differences between the kinds of published encoders: names of their parameters in files, and what they compute.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "encoder_spec.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::models {

/// Published encoder whose blocks, head and names a model has. XLM-RoBERTa and CamemBERT are RoBERTa with other tokens.
struct EncoderVariant {
  const char* name;  // value in a job
  const char* root;  // start of all names but those of the head
  // Names of modules; null: this variant does not have it.
  const char *tokens, *positions = nullptr, *types = nullptr, *embedding_norm, *blocks, *final_norm = nullptr;
  const char *attention, *attention_norm, *feed_forward, *feed_forward_norm;    // inside a block
  const char *mlm_dense, *mlm_norm, *mlm_bias, *mlm_weight;                     // the last is the embedding of tokens
  const char *pooled_dense, *pooled_norm = nullptr, *pooled_classes;            // in a classifier
  const char *tagged_dense = nullptr, *tagged_norm = nullptr, *tagged_classes;  // in a tagger
  nn::Naming in_blocks;
  ops::Activation of_classifier;
  std::optional<ops::Activation> of_tokens = {};  // in the head of each token; none: as in the feed-forward layers
  int64_t token_types = 0, position_offset = 0;   // defaults of a job that does not set them
  bool has_norms_before = false;                  // as EncoderSizes
  bool drops_pooled = false;                      // dropout before a classifier's dense layer
  bool drops_attended = true;                     // dropout of what attention adds
};
const EncoderVariant& encoder_variant(std::string_view name);
std::vector<std::string> encoder_variant_names();

/// Names of the modules of a head; null: there is none. `classes` gives the logits.
struct HeadNames {
  const char *dense = nullptr, *norm = nullptr, *classes = nullptr;
};
HeadNames head_names_of(const EncoderVariant& variant, HeadKind head);

}  // namespace gputrain::models
