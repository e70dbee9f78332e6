// Names of a decoder's parameters in the layouts of published files.
#pragma once

#include "gpt.hpp"

namespace gputrain::models {

struct GptNames {
  const char *tokens, *positions, *blocks, *norm, *head;  // in the model; `positions` is null if they are rotary
  const char *attention, *feed_forward;                   // names of a block
};
const GptNames& names_of(nn::Naming naming);
constexpr const char* kScore = "score";  // layer that gives classes, in all layouts

/// Names of a block's norms; null: there is none at this place.
struct BlockNormNames {
  const char *before_attention, *after_attention, *before_feed_forward, *after_feed_forward;
};
BlockNormNames names_of_norms(nn::Naming naming, NormPlaces places);

}  // namespace gputrain::models
