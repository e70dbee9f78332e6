#include "gputrain/parallel/buckets.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::parallel {
namespace {

/// The best of a few runs, because disturbances only make a run longer.
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

std::vector<device::Range> plan_buckets(const device::Arena& arena, const BucketLimits& limits) {
  const auto element_bytes = static_cast<int64_t>(arena.values().itemsize());
  std::vector<device::Range> units = arena.unit_ranges(), buckets;
  std::reverse(units.begin(), units.end());
  for (const device::Range& unit : units) {
    const int64_t limit = buckets.size() <= 1 ? limits.first_bytes : limits.bytes;
    if (!buckets.empty() && (buckets.back().end - unit.begin) * element_bytes <= limit) {
      buckets.back().begin = unit.begin;
    } else {
      buckets.push_back(unit);
    }
  }
  return buckets;
}

std::vector<device::Range> plan_shards(const device::Arena& arena, int ranks, ShardBounds bounds) {
  const int64_t step = 128 / static_cast<int64_t>(arena.values().itemsize());
  const auto& segments = arena.segments();
  std::vector<device::Range> shards(static_cast<size_t>(ranks));
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t end =
        rank + 1 == ranks ? arena.values().numel() : arena.values().numel() * (rank + 1) / ranks / step * step;
    for (const device::Segment& segment : segments) {
      const int64_t before = segment.offset, after = segment.offset + segment.padded;
      const bool is_cut = before < end && end < after;
      const bool is_whole = bounds == ShardBounds::tensors || !segment.is_row_major();
      if (is_cut && is_whole) end = end - before <= after - end ? before : after;
    }
    end = std::max(begin, end);
    shards[static_cast<size_t>(rank)] = {.begin = begin, .end = end};
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
