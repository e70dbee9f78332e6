// Writes recorded events in the format of Chrome's traces, which Perfetto opens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profile_summary.hpp"

namespace gputrain::train {

struct TraceFacts {
  int rank = 0;
  std::string host;
  int64_t base_ns = 0;                     // the trace's zero, in nanoseconds since 1970; the same on all ranks
  int64_t clock_ahead_ns = 0;              // lead of this host's clock over rank 0's
  std::map<uint64_t, std::string> tracks;  // their names
};

/// Writes one JSON object with an event a line: complete events ("X") in microseconds, each rank a process "rank k".
std::string trace_text(const std::vector<ProfiledEvent>& events, const TraceFacts& facts);

}  // namespace gputrain::train
