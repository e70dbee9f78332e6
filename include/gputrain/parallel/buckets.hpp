// Splits an arena into buckets, which are reduced one after the other, and into shards, which ranks own.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

/// Returns the buckets of an arena in the order they start; together they cover it. A unit above the limit has its own
/// bucket. If ranks split the arena's parts equally, these are the buckets.
std::vector<device::Range> plan_buckets(const device::Arena& arena, const device::JoinLimits& limits);

/// Returns each rank's shard of the arena, if ranks split its parts equally.
std::vector<device::Shard> equal_shards(const device::Arena& arena, int ranks);

/// Returns the same between whole tensors: one range per rank, as equal as tensors allow. Together they cover the
/// arena; some may be empty.
std::vector<device::Shard> shards_of_tensors(const device::Arena& arena, int ranks);

/// Duration of an all-reduce: `latency_seconds` + bytes / `bytes_per_second`.
struct LinkSpeed {
  double latency_seconds = 0;
  double bytes_per_second = 0;
};

/// Times a few all-reduces in the tensors' group. Every rank must call; all get rank 0's result.
LinkSpeed measure_link(comm::ProcessGroups& groups, at::Device device);

/// Returns the cheapest bucket size: each bucket costs one latency, and the last one is not hidden behind backward. A
/// power of two from 1 to 128 MiB.
int64_t best_bucket_bytes(const LinkSpeed& link, int64_t gradient_bytes);

}  // namespace gputrain::parallel
