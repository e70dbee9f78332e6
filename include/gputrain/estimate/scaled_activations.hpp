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

/// The sizes of a decoder, as null options stand for them.
struct DecoderSizes {
  int64_t layers = 0, heads = 0, key_heads = 0, channels = 0, head_channels = 0, inner = 0;
};
/// Of a job that can_scale().
DecoderSizes decoder_sizes(const Job& job);

/// How many ranks share a sample within a stage.
struct SampleRanks {
  int64_t tensor = 1, context = 1;
};

/// Bytes, by which ranks share them.
struct SharedBytes {
  double of_positions = 0;  // each rank of a context has those of its positions
  double of_layers = 0;     // the same, and ranks that share layers have their heads or channels
  double of_keys = 0;       // keys and values that ranks of a context gather: those of all positions

  double on(const SampleRanks& ranks) const noexcept;
};

/// Bytes of one sample, except where the name says otherwise.
struct BlockActivations {
  SharedBytes per_block;                                         // kept until the block's backward pass
  SharedBytes in_block;                                          // beside, at most, while one block computes
  double in_head = 0;                                            // beside, while the head computes, without logits
  double logits = 0;                                             // and what the loss makes of them
  double most_logits = std::numeric_limits<double>::infinity();  // bytes, of any number of samples
  int64_t blocks = 0;
  int64_t divisor = 1;  // channels and inner channels of the measured decoder were divided by it

  /// Of a rank that holds so many blocks of a sample, which may be those of several micro-batches.
  int64_t bytes(int64_t samples, int64_t held_blocks, bool has_head, const SampleRanks& ranks) const noexcept;
  /// Whether logits of so many samples are computed in parts.
  bool has_parts(int64_t samples, const SampleRanks& ranks) const noexcept {
    return logits * static_cast<double>(samples) > most_logits * static_cast<double>(ranks.tensor * ranks.context);
  }
};

/// Whether the job's model is of a kind that can be scaled.
bool can_scale(const Job& job);

/// What the job's data says of its texts.
struct TextFacts {
  int64_t tokens = 0;  // of a sample
  int64_t vocabulary = 0;
};

/// Takes a few steps with small decoders in the job's precision, on this machine's CPU. `checkpointing`: as
/// train.activation_checkpointing. `among`: with more than one, also with two simulated ranks that share layers or
/// positions, to tell apart what they share; otherwise all of a block is that of one rank.
BlockActivations scaled_activations(const Job& job, const std::string& checkpointing, const TextFacts& texts,
                                    const SampleRanks& among);

}  // namespace gputrain::app
