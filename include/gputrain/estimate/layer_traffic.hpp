// Traffic of ranks that share layers (parallel.tensor) or texts (parallel.context), while these layers compute.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/step_time.hpp"

namespace gputrain::app {

/// Sizes of a decoder that decide how much its layers send.
struct DecoderTraffic {
  int64_t tokens = 0;  // tokens of a sample
  int64_t channels = 0;
  int64_t key_channels = 0;                        // channels of the keys of all heads
  int64_t compute_bytes = 2, embedding_bytes = 4;  // bytes per element: in layers; in the embedding's output
};

/// Collectives of a pass of one micro-batch through a part of the model; the layers wait for each of them.
struct LayerTraffic {
  std::vector<Stall> forward, backward;
};

/// Lists the collectives of one micro-batch. Tensor parallelism all-reduces the results of attention and of the
/// feed-forward layers, and the gradients of their inputs (Shoeybi et al., "Megatron-LM", arXiv:1909.08053): [samples,
/// positions of the rank, channels]; once more for the embedding, which is shared by rows, and for the gradient of the
/// head's input. Context parallelism gathers keys and values of all positions, and reduces and scatters their
/// gradients. Block checkpointing repeats a block's forward pass. Left out: the sums over shared logits in a loss.
LayerTraffic layer_traffic(const PlanCandidate& candidate, const DecoderTraffic& sizes, const ModelPart& part,
                           bool has_head);

/// Returns the transfer of one micro-batch's activations, or their gradient, to the next stage of a pipeline.
Collective transfer_between_stages(const PlanCandidate& candidate, const DecoderTraffic& sizes, int64_t stage_ranks);

}  // namespace gputrain::app
