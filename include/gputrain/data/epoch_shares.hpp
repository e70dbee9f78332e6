// How an epoch is shared out over ranks, found by asking the plan that each rank's loader follows.
#pragma once

#include <cstdint>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/usage.hpp"

namespace gputrain::data {

struct EpochShares {
  int64_t steps = 0;      // in an epoch
  int64_t most_rows = 0;  // of the largest micro-batch

  /// Samples that count, of a rank.
  struct Spread {
    int64_t fewest = 0, most = 0;

    friend bool operator==(const Spread&, const Spread&) = default;
  };
  Spread in_step;  // in a full step
  Spread in_epoch;
  int64_t used = 0;               // samples of all ranks in an epoch; fewer than there are where data.last is drop
  int64_t in_last_step = 0;       // of them
  int64_t idle_in_last_step = 0;  // ranks without a sample there
  /// Every sample was looked up in the order and met once. False: there are too many of them to do so in seconds.
  bool each_looked_up = false;
};

/// Goes through the first epoch of all ranks. A sample that two ranks or none of them would take is an assertion.
/// `share`: of whichever rank. Throws what a rank's loader would.
EpochShares walk_epoch(const OrderFacts& order, const Share& share);

}  // namespace gputrain::data
