#include "gputrain/estimate/plan_meshes.hpp"

#include <algorithm>

namespace gputrain::app {
namespace {

/// Returns 1 and the powers of two up to `most` that are good; or the one that the job sets.
template <class IsGood>
std::vector<int64_t> powers(int64_t fixed, int64_t most, const IsGood& is_good) {
  if (fixed > 1) return {fixed};
  std::vector<int64_t> all{1};
  for (int64_t power = 2; power <= most; power *= 2)
    if (is_good(power)) all.push_back(power);
  return all;
}

std::vector<int64_t> stages_of(const MeshRequest& request) {
  if (request.fixed.pipeline > 1) return {request.fixed.pipeline};
  std::vector<int64_t> stages = divisors_of(request.sizes.layers);
  std::erase_if(stages, [&](int64_t one) { return request.ranks % one != 0; });
  return stages;
}

/// Returns the numbers of parts that each stage may have.
std::vector<int64_t> parts_of(const MeshRequest& request, int64_t stages) {
  if (stages == 1) return {1};
  if (request.fixed.virtual_stages > 1) return {request.fixed.virtual_stages};
  constexpr int64_t kInterleaved = 2;
  if (request.sizes.layers % (kInterleaved * stages) != 0) return {1};
  return {1, kInterleaved};
}

}  // namespace

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.insert(large.begin(), number / i);
  }
  small.insert(small.end(), large.begin(), large.end());
  return small;
}

std::vector<PlanCandidate> meshes_of(const MeshRequest& request) {
  const auto& [ranks, in_host, sizes, tokens, fixed] = request;
  const auto tensors = powers(fixed.tensor, std::min(ranks, in_host), [&](int64_t one) {
    return in_host % one == 0 && sizes.heads % one == 0 && sizes.key_heads % one == 0;
  });
  const auto contexts =
      powers(fixed.context, std::min(ranks, tokens / kLeastPositions), [&](int64_t one) { return tokens % one == 0; });
  std::vector<PlanCandidate> all;
  for (const int64_t stages : stages_of(request)) {
    for (const int64_t parts : parts_of(request, stages)) {
      for (const int64_t tensor : tensors) {
        for (const int64_t context : contexts) {
          const PlanCandidate one{.context = context, .tensor = tensor, .pipeline = stages, .virtual_stages = parts};
          if (ranks % one.ranks_of_a_sample() == 0) all.push_back(one);
        }
      }
    }
  }
  return all;
}

std::vector<std::string> shards_of(const PlanCandidate& mesh, int64_t ranks) {
  if (ranks / (mesh.tensor * mesh.pipeline) == 1) return {"none"};
  return {"none", "optimizer", "gradients", "parameters"};
}

std::vector<int64_t> replicas_of(const PlanCandidate& mesh, int64_t ranks, int64_t ranks_per_host) {
  const int64_t cells = ranks / (mesh.tensor * mesh.pipeline);
  std::vector<int64_t> replicas{1};
  for (const int64_t one : divisors_of(cells)) {
    const int64_t shards = cells / one;
    if (one > 1 && shards > 1 && shards * mesh.tensor % ranks_per_host == 0 && shards % mesh.context == 0)
      replicas.push_back(one);
  }
  return replicas;
}

}  // namespace gputrain::app
