// Activations of decoders that are too large to take a step here: measured on much smaller ones of the same kind.
//
// What a block keeps for its backward pass, and what it needs while it computes, are tensors of tokens times channels,
// inner channels, or heads. With all of these divided by one number they are that much smaller. What the head needs
// beside is a multiple of tokens times vocabulary, up to the limit above which logits are computed in parts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Bytes of one sample, except where the name says otherwise.
struct BlockActivations {
  double per_block = 0;                                          // kept until the block's backward pass
  double in_block = 0;                                           // beside, at most, while one block computes
  double in_head = 0;                                            // beside, while the head computes, without logits
  double logits = 0;                                             // and what the loss makes of them
  double most_logits = std::numeric_limits<double>::infinity();  // bytes, of any number of samples
  int64_t blocks = 0;
  int64_t divisor = 1;  // channels and inner channels of the measured decoder were divided by it

  int64_t bytes(int64_t samples) const noexcept;
  /// Whether logits of so many samples are computed in parts.
  bool has_parts(int64_t samples) const noexcept { return logits * static_cast<double>(samples) > most_logits; }
};

/// Whether the job's model is of a kind that can be scaled.
bool can_scale(const Job& job);

/// What the job's data says of its texts.
struct TextFacts {
  int64_t tokens = 0;  // of a sample
  int64_t vocabulary = 0;
};

/// Takes a few steps with small decoders in the job's precision, on this machine's CPU. `checkpointing`: as
/// train.activation_checkpointing.
BlockActivations scaled_activations(const Job& job, const std::string& checkpointing, const TextFacts& texts);

}  // namespace gputrain::app
