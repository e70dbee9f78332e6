// Names of an encoder's parameters in published files.
#pragma once

#include "encoder_spec.hpp"

namespace gputrain::models {

/// Names of modules; null: this variant does not have it.
struct EncoderNames {
  const char* root;  // start of all names but those of the head
  const char *tokens, *positions, *types, *embedding_norm, *blocks, *final_norm;
  const char *attention, *attention_norm, *feed_forward, *feed_forward_norm;  // inside a block
  const char *mlm_dense, *mlm_norm, *mlm_bias;
  const char *pooled_dense, *pooled_norm, *pooled_classes;  // in a classifier
  const char *tagged_dense, *tagged_norm, *tagged_classes;  // in a tagger
};
const EncoderNames& encoder_names_of(EncoderVariant variant);

/// Names of the modules of a head; null: there is none. `classes` gives the logits.
struct HeadNames {
  const char *dense = nullptr, *norm = nullptr, *classes = nullptr;
};
HeadNames head_names_of(EncoderVariant variant, HeadKind head);

}  // namespace gputrain::models
