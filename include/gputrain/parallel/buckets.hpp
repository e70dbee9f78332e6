// Splits an arena into buckets, which are reduced one after the other, and into shards, which ranks own.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

struct BucketLimits {
  int64_t bytes = int64_t{25} << 20;
  int64_t first_bytes = int64_t{1} << 20;  // small, so that communication starts early
};

/// The buckets of an arena in the order they start; together they cover it. A unit above the limit has its own bucket.
std::vector<device::Range> plan_buckets(const device::Arena& arena, const BucketLimits& limits);

/// Where an arena may be cut: also within tensors in row-major order, or between tensors only.
enum class ShardBounds { anywhere, tensors };

/// Cuts an arena into one stretch per rank, equal up to a few tensors: bounds lie at multiples of 128 bytes, and never
/// within a tensor that is not in row-major order. Together they cover it; some may be empty.
std::vector<device::Range> plan_shards(const device::Arena& arena, int ranks,
                                       ShardBounds bounds = ShardBounds::anywhere);

/// Duration of an all-reduce: `latency_seconds` + bytes / `bytes_per_second`.
struct LinkSpeed {
  double latency_seconds = 0;
  double bytes_per_second = 0;
};

/// Times a few all-reduces in the tensors' group. Every rank must call; all get rank 0's result.
LinkSpeed measure_link(comm::ProcessGroups& groups, at::Device device);

/// The cheapest bucket size: each bucket costs one latency, and the last one is not hidden behind backward. A power of
/// two from 1 to 128 MiB.
int64_t best_bucket_bytes(const LinkSpeed& link, int64_t gradient_bytes);

}  // namespace gputrain::parallel
