#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace gputrain::monitor {

/// The last whole lines of a file, so many bytes at most; empty if it cannot be read.
std::string newest_lines(const std::filesystem::path& path, size_t bytes);

}  // namespace gputrain::monitor
