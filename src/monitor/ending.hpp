// How the attempt has ended, for sinks that are told nothing of it but that they are closed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gputrain::monitor {

struct Ending {
  std::string status;  // done | stopped | failed
  int exit_code = 1;
};

/// What summary.json of the run folder says; nullopt if the attempt has written no end.
std::optional<Ending> ending_of(const std::filesystem::path& run_folder);

}  // namespace gputrain::monitor
