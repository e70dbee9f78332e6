// Numbers in the lines of the kernel's text files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gputrain::device {

/// Returns the number after `word` at the start of a line: "MemAvailable:   123 kB"; 0 if there is no such line.
int64_t number_behind(const std::string& word, const std::filesystem::path& path);

}  // namespace gputrain::device
