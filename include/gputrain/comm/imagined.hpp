// What ranks that are not there would send: ProcessGroups::imagined() makes groups that know their rank and size and
// send nothing, so that one process can check a job of any number of ranks with the code that real runs use.
//
// Every collective returns at once: sums and broadcasts leave the tensor as it is, a gather has everybody's share equal
// to the caller's own.
#pragma once

#include <cstdint>

namespace gputrain::comm {

/// The collectives of the group for tensors, counted; those of the control group are too small to matter.
struct Traffic {
  struct Kind {
    int64_t calls = 0;
    int64_t bytes = 0;  // of the caller's tensors

    friend bool operator==(const Kind&, const Kind&) = default;
  };
  Kind all_reduce, reduce, broadcast, all_gather;

  /// What each rank sends, on average, when every collective goes round a ring of all ranks, which no other way
  /// betters.
  double ring_bytes(int world_size) const noexcept;
  /// What came since.
  Traffic operator-(const Traffic& earlier) const noexcept;
};

}  // namespace gputrain::comm
