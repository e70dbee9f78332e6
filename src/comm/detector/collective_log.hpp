// A log of this rank's work for the other ranks: its place in the work, and its collectives, counted and named.
//
// The training thread writes, the watch thread reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

namespace gputrain::comm {

/// Names of the groups of all ranks. Groups of a part of them have other names, one for each set of ranks.
inline constexpr const char *kControl = "control", *kTensors = "tensor";

/// A collective that a rank waits for.
struct AwaitedCollective {
  std::string group;   // the group counts its collectives from 1; empty: all that `caller` has called in any group
  int64_t number = 0;  // among those of the group
  std::string what;    // "all-reduce of gradients 3"
  double seconds = 0;
  int caller = 0;
};

/// The work of a rank at one moment. Times are durations, because the clocks of hosts differ.
struct RankStatus {
  struct Lane {
    int64_t begun = 0;               // collectives so far
    int64_t mark = 0;                // the last multiple of 64 among them
    uint64_t mark_hash = 0;          // hash of the collectives up to the mark
    std::vector<std::string> calls;  // names of the collectives up to `last`; only on request
    int64_t last = 0;
  };
  std::string phase;  // "in step 12"
  double phase_seconds = 0;
  std::optional<AwaitedCollective> waiting;
  std::map<std::string, Lane> lanes;  // by group

  /// Returns the collectives in a group; none if the rank has not called any.
  const Lane& lane(const std::string& group) const;
  /// Returns the name of the collective with that number, if known.
  std::optional<std::string> call(const std::string& group, int64_t number) const;
};

nlohmann::json to_json(const RankStatus& status);
/// Throws nlohmann::json::exception.
RankStatus rank_status_from_json(const nlohmann::json& json);

class CollectiveLog {
 public:
  /// Sets the rank's place in its work: "in step", 12. Returns whether `phase` has changed.
  bool enter(const char* phase, int64_t step);
  /// Counts a collective, with the size and type of its tensor. Returns its number.
  int64_t begin(const std::string& group, const std::string& what, const at::Tensor& tensor);
  /// Notes that the rank waits for this collective until waited().
  void wait_for(AwaitedCollective waiting);
  void waited();

  RankStatus status(bool with_calls) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Lane {
    int64_t begun = 0, mark = 0;
    uint64_t hash = 0, mark_hash = 0;
    std::deque<std::string> calls;
  };
  mutable std::mutex mutex_;
  const char* phase_ = "at the start";
  int64_t step_ = -1;
  Clock::time_point entered_ = Clock::now(), waits_since_;
  std::optional<AwaitedCollective> waiting_;
  std::map<std::string, Lane> lanes_;
};

}  // namespace gputrain::comm
