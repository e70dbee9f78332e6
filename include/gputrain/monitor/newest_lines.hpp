#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace gputrain::monitor {

/// Returns the last lines of a file that fit into so many bytes; empty if the file cannot be read.
std::string newest_lines(const std::filesystem::path& path, size_t bytes);

}  // namespace gputrain::monitor
