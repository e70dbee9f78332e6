// What this rank is at, for the others to know: its place in the work, and its collectives, counted and named.
//
// The thread that trains writes, the one that watches reads.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

namespace gputrain::comm {

/// The groups of a rank; each counts its collectives from 1.
enum class Channel : size_t { control, tensors };
inline constexpr size_t kChannels = 2;

/// A collective that a rank waits for.
struct Awaited {
  Channel channel = Channel::control;
  int64_t number = 0;
  std::string what;  // "all-reduce of gradients 3"
  double seconds = 0;
};

/// What a rank is at, at one moment. Times are spans: hosts need not agree on the hour.
struct Standing {
  struct Lane {
    int64_t begun = 0;               // collectives
    int64_t mark = 0;                // of them, the last round number
    uint64_t mark_hash = 0;          // of what the collectives up to the mark were
    std::vector<std::string> calls;  // what they were, up to `last`; only where asked for
    int64_t last = 0;
  };
  std::string place;  // "in step 12"
  double place_seconds = 0;
  std::optional<Awaited> waiting;
  std::array<Lane, kChannels> lanes;

  const Lane& lane(Channel channel) const { return lanes[static_cast<size_t>(channel)]; }
  /// What the collective of that number was, where it is known.
  std::optional<std::string> call(Channel channel, int64_t number) const;
};

nlohmann::json to_json(const Standing& standing);
/// Throws nlohmann::json::exception.
Standing standing_from_json(const nlohmann::json& json);

class Journal {
 public:
  /// The rank's place in its work from now on: "in step", 12. Returns whether it is one of another kind.
  bool enter(const char* place, int64_t step);
  /// Counts a collective, with the size and type of what it moves. Returns its number.
  int64_t begin(Channel channel, const std::string& what, const at::Tensor& tensor);
  /// So many were counted.
  int64_t begun(Channel channel) const;
  /// From now on the rank waits for a collective.
  void wait_for(Awaited waiting);
  void waited();

  Standing standing(bool with_calls) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Lane {
    int64_t begun = 0, mark = 0;
    uint64_t hash = 0, mark_hash = 0;
    std::deque<std::string> calls;
  };
  mutable std::mutex mutex_;
  const char* place_ = "at the start";
  int64_t step_ = -1;
  Clock::time_point entered_ = Clock::now(), waits_since_;
  std::optional<Awaited> waiting_;
  std::array<Lane, kChannels> lanes_;
};

}  // namespace gputrain::comm
