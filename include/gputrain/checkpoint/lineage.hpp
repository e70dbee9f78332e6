// Which branch of a run's history a checkpoint belongs to. Who starts over, or goes on from an older checkpoint by
// choice, leaves newer ones behind, and not all of them may be in reach: a disk that is away then comes back with
// checkpoints that are newer and no longer the run's.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::checkpoint {

struct Lineage {
  struct Branch {
    std::string id;                                           // empty: from scratch, where nobody had chosen that
    int64_t last_step = std::numeric_limits<int64_t>::max();  // later ones were left

    friend bool operator==(const Branch&, const Branch&) = default;
  };
  std::vector<Branch> branches;  // oldest first; none: nothing was ever left

  /// One of its own: nothing that there is now belongs to it.
  static Lineage begin();
  /// That of who goes on from a checkpoint of this lineage and leaves what is newer.
  Lineage branch_off(int64_t step) const;

  const std::string& id() const;  // of its newest branch
  /// Whether it is the same or has branched off it.
  bool descends_from(const Lineage& other) const;
  /// Whether a checkpoint of that lineage and step is one of this: from before where this branched off, or later. Any
  /// is where nothing was ever left.
  bool includes(const Lineage& of_checkpoint, int64_t step) const;

  friend bool operator==(const Lineage&, const Lineage&) = default;
};

nlohmann::json json_of(const Lineage& lineage);
/// Throws nlohmann::json::exception for anything but what json_of wrote.
Lineage lineage_in(const nlohmann::json& json);

}  // namespace gputrain::checkpoint
