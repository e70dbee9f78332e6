// Limits of the control groups that hold this process: containers, batch systems, systemd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace gputrain::device {

/// The least of each level, from this process's group up to the root that it sees.
struct GroupLimits {
  int64_t memory_bytes = INT64_MAX;  // limit of a group
  int64_t room_bytes = INT64_MAX;    // memory that it can still take; the page cache counts as free
  std::optional<double> cores = {};  // the CPU quota
};

/// Reads version 2, and version 1 with its controllers in folders of their own.
GroupLimits group_limits(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& control_groups = "/sys/fs/cgroup");

}  // namespace gputrain::device
