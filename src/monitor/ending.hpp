// End of the attempt, for sinks that only see that they are closed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gputrain::monitor {

struct Ending {
  std::string status;  // done | stopped | failed
  int exit_code = 1;
};

/// Reads the end from summary.json of the run folder; nullopt if the attempt has written none.
std::optional<Ending> ending_of(const std::filesystem::path& run_folder);

}  // namespace gputrain::monitor
