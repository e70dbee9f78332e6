// How fast a disk takes data.
#pragma once

#include <cstdint>
#include <filesystem>

namespace gputrain::doctor {

/// Bytes per second, by a file that is written in `folder`, brought to the disk and removed. 0: that failed.
double measure_write_speed(const std::filesystem::path& folder, int64_t bytes = int64_t{64} << 20);

}  // namespace gputrain::doctor
