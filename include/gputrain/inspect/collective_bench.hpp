// Benchmark of the collectives of a group: time for a size, and share of the links' bandwidth.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"

namespace gputrain::app {

/// Returns "all_reduce", "reduce", "broadcast", "all_gather".
const std::vector<std::string>& collective_names();

/// Returns the bytes that a rank's link carries per byte of the result, as nccl-tests defines them: 2 (n - 1) / n for
/// all_reduce, (n - 1) / n for all_gather, 1 for broadcast and reduce.
double bus_factor(std::string_view collective, int ranks);

/// Result for one collective and one size. The data is fp32.
struct CollectiveRow {
  std::string collective;
  int ranks = 1;
  int64_t bytes = 0;   // size of the result: for all_gather the parts of all ranks together
  int64_t wrong = 0;   // elements of the results of all ranks that are not what they should be
  double seconds = 0;  // time of one call on the slowest rank

  int64_t elements() const noexcept { return bytes / 4; }
  /// Returns the bytes per second.
  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(collective, ranks); }
};

struct CollectiveCounts {
  int64_t warmup = 5, iterations = 20;
};

/// Checks the result of one call, then times `iterations` calls in a row after `warmup` others. all_gather uses the
/// next size that divides among the ranks. Every rank must call it.
CollectiveRow time_collective(const std::string& collective, int64_t bytes, const CollectiveCounts& counts,
                              comm::ProcessGroups& groups, at::Device device);

/// Returns `first`, and its products with powers of `factor`, up to `last`.
std::vector<int64_t> sizes_between(int64_t first, int64_t last, int64_t factor);

}  // namespace gputrain::app
