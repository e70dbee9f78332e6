// The branch of a run's history that a checkpoint belongs to. Starting over, or resuming from an older checkpoint by
// choice, abandons the newer checkpoints. Some of them may be on a disk that is offline at the time; the lineage
// rejects them when the disk comes back.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::checkpoint {

struct Lineage {
  struct Branch {
    std::string id;                                           // empty: from scratch, not by choice
    int64_t last_step = std::numeric_limits<int64_t>::max();  // later steps are abandoned

    friend bool operator==(const Branch&, const Branch&) = default;
  };
  std::vector<Branch> branches;  // oldest first; none: nothing was ever abandoned

  /// A new lineage: no existing checkpoint belongs to it.
  static Lineage begin();
  /// The lineage of a run that resumes from this lineage's checkpoint at `step` and abandons the newer ones.
  Lineage branch_off(int64_t step) const;

  const std::string& id() const;  // of the newest branch
  /// True if this lineage equals `other` or branched off it.
  bool descends_from(const Lineage& other) const;
  /// True if a checkpoint of that lineage and step belongs to this one: it was saved before this one branched off, or
  /// after. Always true if nothing was ever abandoned.
  bool includes(const Lineage& of_checkpoint, int64_t step) const;

  friend bool operator==(const Lineage&, const Lineage&) = default;
};

nlohmann::json json_of(const Lineage& lineage);
/// Throws nlohmann::json::exception for anything that json_of() did not write.
Lineage lineage_in(const nlohmann::json& json);

}  // namespace gputrain::checkpoint
