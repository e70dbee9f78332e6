// Groups without peers: ProcessGroups::simulated() makes groups that have a rank and a size but send nothing. One
// process can then check a job of any number of ranks with the code of real runs.
//
// Every collective returns at once: sums and broadcasts leave the tensor unchanged, a gather fills every rank's share
// with the caller's own tensor, unless that is a part of the result.
#pragma once

#include <cstdint>

namespace gputrain::comm {

/// The collectives of the tensor group; those of the control group are too small to matter.
struct CollectiveTraffic {
  struct Kind {
    int64_t calls = 0;
    int64_t bytes = 0;  // size of the caller's tensors

    friend bool operator==(const Kind&, const Kind&) = default;
  };
  Kind all_reduce, reduce, broadcast, all_gather, reduce_scatter;

  /// Returns the traffic since `earlier`.
  CollectiveTraffic operator-(const CollectiveTraffic& earlier) const noexcept;
  /// Returns this traffic and so many times `more`.
  CollectiveTraffic plus(int64_t times, const CollectiveTraffic& more) const noexcept;
};

}  // namespace gputrain::comm
