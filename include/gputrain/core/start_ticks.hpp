// Tells processes apart, though their ids come again.
#pragma once

#include <cstdint>
#include <optional>

#include <sys/types.h>

namespace gputrain {

/// Returns when a process was started, in clock ticks since boot; nothing if it has ended. With the process id, no two
/// processes of one boot have the same.
std::optional<int64_t> start_ticks_of(pid_t process);

}  // namespace gputrain
