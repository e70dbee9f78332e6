// What ranks send while layers compute that they share (parallel.tensor), or whose texts they share (parallel.context).
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/step_time.hpp"

namespace gputrain::app {

/// The sizes of a decoder that decide what its layers send.
struct DecoderTraffic {
  int64_t tokens = 0;  // of a sample
  int64_t channels = 0;
  int64_t key_channels = 0;                        // of the keys of all heads
  int64_t compute_bytes = 2, embedding_bytes = 4;  // of an element: in layers; of what the embedding gives
};

/// Collectives of a pass of one micro-batch through a part of the model; the layers wait for each of them.
struct LayerTraffic {
  std::vector<Stall> forward, backward;
};

/// Tensor parallelism: the results of attention and of the feed-forward layers are all-reduced, and so are the
/// gradients of what these read (Shoeybi et al., "Megatron-LM", arXiv:1909.08053): [samples, positions of the rank,
/// channels]. Besides once for the embedding, which is shared by rows, and for the gradient of what the head reads.
/// Context parallelism: keys and values of all positions are gathered, and their gradients reduced and scattered. Block
/// checkpointing does all of a block's forward pass again. Left out: what a loss adds up of shared logits.
LayerTraffic layer_traffic(const PlanCandidate& candidate, const DecoderTraffic& sizes, const ModelPart& part,
                           bool has_head);

/// What a part of the model gives to the next stage of a pipeline, or its gradient: of one micro-batch.
Collective transfer_between_stages(const PlanCandidate& candidate, const DecoderTraffic& sizes, int64_t stage_ranks);

}  // namespace gputrain::app
