#include "gputrain/parallel/buckets.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::parallel {
namespace {

/// Returns the best of a few runs, because disturbances only make a run longer.
double seconds_of_all_reduce(comm::Group& group, at::Device device, int64_t bytes) {
  constexpr int kTimes = 5;
  const at::Tensor tensor = at::zeros({bytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device));
  double best = INFINITY;
  for (int i = 0; i < kTimes; ++i) {
    device::synchronize(device);
    const auto begin = std::chrono::steady_clock::now();
    group.all_reduce_sum(tensor, "measurement of the link").wait();
    device::synchronize(device);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

std::vector<device::Range> plan_buckets(const device::Arena& arena, const device::JoinLimits& limits) {
  if (!arena.parts().empty()) return arena.parts();
  return device::join(arena.unit_ranges(), arena.element_bytes(), limits);
}

std::vector<device::Shard> equal_shards(const device::Arena& arena, int ranks) {
  std::vector<device::Shard> shards;
  for (int rank = 0; rank < ranks; ++rank) shards.push_back(arena.shard_of(rank));
  return shards;
}

std::vector<device::Shard> shards_of_tensors(const device::Arena& arena, int ranks) {
  std::vector<device::Shard> shards;
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t end = rank + 1 == ranks ? arena.numel() : arena.numel() * (rank + 1) / ranks;
    for (const device::Segment& segment : arena.segments()) {
      const int64_t before = segment.offset, after = segment.offset + segment.padded;
      if (before < end && end < after) end = end - before <= after - end ? before : after;
    }
    end = std::max(begin, end);
    shards.push_back({{.begin = begin, .end = end}});
    begin = end;
  }
  return shards;
}

LinkSpeed measure_link(comm::ProcessGroups& groups, at::Device device) {
  constexpr int64_t kSmallBytes = int64_t{4} << 10, kLargeBytes = int64_t{4} << 20;
  const double small = seconds_of_all_reduce(groups.tensors(), device, kSmallBytes);
  const double large = seconds_of_all_reduce(groups.tensors(), device, kLargeBytes);
  // On a busy machine, the small one may take as long as the large one.
  const at::Tensor measured = at::tensor({small, kLargeBytes / std::max(large - small, large / 10)}, at::kDouble);
  groups.control().broadcast(measured, 0, "speed of the link");
  return {.latency_seconds = measured[0].item<double>(), .bytes_per_second = measured[1].item<double>()};
}

// n buckets of b bytes cost n latencies, and b / speed of the last one is not hidden behind backward. With n = gradient
// / b, the sum is smallest if b^2 = gradient * latency * speed.
int64_t best_bucket_bytes(const LinkSpeed& link, int64_t gradient_bytes) {
  constexpr double kMebibyte = 1 << 20;
  const double best = std::sqrt(static_cast<double>(gradient_bytes) * link.latency_seconds * link.bytes_per_second);
  const double exponent = std::round(std::log2(std::max(best, 1.0) / kMebibyte));
  return std::llround(kMebibyte * std::exp2(std::clamp(exponent, 0.0, 7.0)));
}

}  // namespace gputrain::parallel
