// Activations of decoders that are too large to take a step here: measured on much smaller ones of the same kind.
//
// The tensors that a block keeps for its backward pass, and those it needs while it computes, have the size of tokens
// times channels, inner channels, or heads. With all of these divided by one number they are that much smaller. The
// head needs in addition a multiple of tokens times vocabulary, up to the limit for computing logits in parts. Whatever
// the tokens, there is one matrix at a time whose gradient is made, or which is unpacked for its product.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Sizes of a decoder, with null options resolved.
struct DecoderSizes {
  int64_t layers = 0, heads = 0, key_heads = 0, channels = 0, head_channels = 0, inner = 0;
};
/// Returns the sizes of a job for which can_scale() is true.
DecoderSizes decoder_sizes(const Job& job);

/// Numbers of ranks that share a sample within a stage.
struct SampleRanks {
  int64_t tensor = 1, context = 1;
};

/// Bytes, grouped by the ranks that share them.
struct SharedBytes {
  double of_positions = 0;  // split by a context: each rank has its positions
  double of_layers = 0;     // split in the same way, and by heads or channels among ranks that share layers
  double of_keys = 0;       // keys and values of all positions, which ranks of a context gather

  double on(const SampleRanks& ranks) const noexcept;
};

/// Bytes for any number of samples, and whatever is kept for the backward pass.
struct MatrixBytes {
  double of_block = 0;  // additional peak for the largest matrix of a block
  double of_table = 0;  // the same for that of the embedding, when the blocks keep nothing any more
};

/// Bytes of one sample, unless the name says otherwise.
struct BlockActivations {
  SharedBytes per_block;                                         // kept until the block's backward pass
  SharedBytes in_block;                                          // additional peak while one block computes
  double in_head = 0;                                            // additional peak for the head, without logits
  double logits = 0;                                             // logits, and what the loss computes from them
  double most_logits = std::numeric_limits<double>::infinity();  // limit in bytes, for any number of samples
  MatrixBytes matrices = {};
  int64_t blocks = 0;
  int64_t divisor = 1;  // divisor of channels and inner channels in the measured decoder

  /// Returns the bytes of a rank that holds so many blocks of a sample, which may be those of several micro-batches.
  int64_t bytes(int64_t samples, int64_t held_blocks, bool has_head, const SampleRanks& ranks) const noexcept;
  /// Returns whether logits of so many samples are computed in parts.
  bool has_parts(int64_t samples, const SampleRanks& ranks) const noexcept {
    return logits * static_cast<double>(samples) > most_logits * static_cast<double>(ranks.tensor * ranks.context);
  }
};

/// Returns whether the job's model is of a kind that can be scaled.
bool can_scale(const Job& job);

/// Facts of the job's texts.
struct TextFacts {
  int64_t tokens = 0;  // tokens of a sample
  int64_t vocabulary = 0;
};

/// Takes a few steps with small decoders in the job's precision, on this machine's CPU. `checkpointing`: as
/// train.activation_checkpointing. `among`: with more than one, also runs two simulated ranks that share layers or
/// positions, to measure what they share; otherwise one rank has all of a block. Leaves `matrices` open.
BlockActivations scaled_activations(const Job& job, const std::string& checkpointing, const TextFacts& texts,
                                    const SampleRanks& among);

/// Measures in the same way the gradient of a trained matrix, and the values of a packed one.
MatrixBytes scaled_matrices(const Job& job, const TextFacts& texts);

}  // namespace gputrain::app
