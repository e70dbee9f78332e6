#include "gputrain/estimate/layer_traffic.hpp"

namespace gputrain::app {
namespace {

using Kind = Collective::Kind;

void add_tensor(LayerTraffic& traffic, const PlanCandidate& candidate, const DecoderTraffic& sizes,
                const ModelPart& part, bool has_head) {
  const int64_t elements = candidate.micro_batch * sizes.tokens / candidate.context * sizes.channels;
  const auto sum = [&](int64_t element_bytes) {
    return Collective{.kind = Kind::all_reduce, .bytes = elements * element_bytes, .ranks = candidate.tensor};
  };
  const int64_t in_blocks = 2 * part.blocks, again = candidate.checkpointing == "block" ? in_blocks : 0;
  traffic.forward.push_back({sum(sizes.compute_bytes), in_blocks});
  if (part.has_stem()) traffic.forward.push_back({sum(sizes.embedding_bytes), 1});
  traffic.backward.push_back({sum(sizes.compute_bytes), in_blocks + again + (has_head ? 1 : 0)});
}

void add_context(LayerTraffic& traffic, const PlanCandidate& candidate, const DecoderTraffic& sizes,
                 const ModelPart& part) {
  const int64_t bytes =
      2 * candidate.micro_batch * sizes.tokens * sizes.key_channels / candidate.tensor * sizes.compute_bytes;
  const auto of_keys = [&](Kind kind) {
    return Stall{{.kind = kind, .bytes = bytes, .ranks = candidate.context, .stride = candidate.tensor}, part.blocks};
  };
  traffic.forward.push_back(of_keys(Kind::all_gather));
  if (candidate.checkpointing == "block") traffic.backward.push_back(of_keys(Kind::all_gather));
  traffic.backward.push_back(of_keys(Kind::reduce_scatter));
}

}  // namespace

LayerTraffic layer_traffic(const PlanCandidate& candidate, const DecoderTraffic& sizes, const ModelPart& part,
                           bool has_head) {
  LayerTraffic traffic;
  if (candidate.tensor > 1) add_tensor(traffic, candidate, sizes, part, has_head);
  if (candidate.context > 1) add_context(traffic, candidate, sizes, part);
  return traffic;
}

Collective transfer_between_stages(const PlanCandidate& candidate, const DecoderTraffic& sizes, int64_t stage_ranks) {
  const int64_t elements = candidate.micro_batch * sizes.tokens / candidate.context * sizes.channels;
  return {.kind = Kind::transfer, .bytes = elements * sizes.compute_bytes, .ranks = 2, .stride = stage_ranks};
}

}  // namespace gputrain::app
