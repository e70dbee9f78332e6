// Which ways to share a model and its texts among ranks are worth a prediction, by arithmetic alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/scaled_activations.hpp"

namespace gputrain::app {

struct MeshRequest {
  int64_t ranks = 1, ranks_per_host = 8;
  DecoderSizes sizes;
  int64_t tokens = 0;   // of a sample
  PlanCandidate fixed;  // degrees that the job sets; 1: free
};

/// Candidates that differ in `context`, `tensor`, `pipeline` and `virtual_stages`; the first one has the job's own.
/// Tensor: powers of two that a host holds whole and that divide the heads and key heads. Pipeline: stages with as many
/// layers each, of one part or of two. Context: powers of two that leave each rank kLeastPositions.
std::vector<PlanCandidate> meshes_of(const MeshRequest& request);

/// Positions of a text that each rank has at least, where the search shares texts: with fewer, ranks that do not share
/// them have room enough.
constexpr int64_t kLeastPositions = 4096;

/// Sharings of the optimizer state, gradients and parameters for which a mesh has the ranks.
std::vector<std::string> shards_of(const PlanCandidate& mesh, int64_t ranks);

/// How many replicas the ranks of a mesh can be whose shards lie within hosts, or which have whole hosts.
std::vector<int64_t> replicas_of(const PlanCandidate& mesh, int64_t ranks, int64_t ranks_per_host);

/// In ascending order.
std::vector<int64_t> divisors_of(int64_t number);

}  // namespace gputrain::app
