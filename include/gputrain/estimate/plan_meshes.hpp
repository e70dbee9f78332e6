// Ways to share a model and its texts among ranks that are worth a prediction, by arithmetic alone.
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
  int64_t tokens = 0;   // tokens of a sample
  PlanCandidate fixed;  // degrees that the job sets; 1: free
};

/// Lists candidates that differ in `context`, `tensor`, `pipeline` and `virtual_stages`; the first one has the job's
/// own. Tensor: powers of two that divide the ranks of a host, the heads and key heads. Pipeline: stages with equally
/// many layers, in one part or in two. Context: powers of two that leave each rank kLeastPositions.
std::vector<PlanCandidate> meshes_of(const MeshRequest& request);

/// Least number of positions per rank if the search shares texts: with fewer, whole texts fit as well.
constexpr int64_t kLeastPositions = 4096;

/// Lists the ways to shard optimizer state, gradients and parameters for which a mesh has enough ranks.
std::vector<std::string> shards_of(const PlanCandidate& mesh, int64_t ranks);

/// Lists the numbers of replicas for a mesh: 1, and those with whole hosts for each replica.
std::vector<int64_t> replicas_of(const PlanCandidate& mesh, int64_t ranks, int64_t ranks_per_host);

/// Returns the divisors in ascending order.
std::vector<int64_t> divisors_of(int64_t number);

}  // namespace gputrain::app
