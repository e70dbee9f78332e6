// Reading of files in a run folder.
#pragma once

#include <filesystem>
#include <string>

namespace gputrain::monitor {

/// Returns the content of a file; empty if there is none. Throws Error(environment) if it cannot be read to its end.
std::string read_whole(const std::filesystem::path& path);

}  // namespace gputrain::monitor
