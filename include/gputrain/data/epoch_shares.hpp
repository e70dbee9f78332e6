// Division of an epoch over ranks, according to the step plan that each rank's loader uses.
#pragma once

#include <cstdint>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/sample_usage.hpp"

namespace gputrain::data {

struct EpochShares {
  int64_t steps = 0;      // steps in an epoch
  int64_t most_rows = 0;  // rows of the largest micro-batch
  int64_t repeats = 1;    // times that each sample is taken

  /// Counted samples per rank.
  struct Spread {
    int64_t fewest = 0, most = 0;

    friend bool operator==(const Spread&, const Spread&) = default;
  };
  Spread in_step;  // spread in a full step
  Spread in_epoch;
  int64_t used = 0;               // counted samples of all ranks in an epoch; some are left out if data.last is drop
  int64_t in_last_step = 0;       // counted samples of all ranks in the last step
  int64_t idle_in_last_step = 0;  // ranks without a sample in the last step
  /// True: every sample index was computed and occurs once. False: too many samples to check within seconds.
  bool each_looked_up = false;
};

/// Walks through the first epoch of all ranks. Asserts that exactly one rank takes each sample. `partition` may be that
/// of any rank. Throws what the constructor of a loader throws.
EpochShares walk_epoch(const OrderFacts& order, const DataPartition& partition);

}  // namespace gputrain::data
