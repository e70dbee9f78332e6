// Images that are stored in another orientation than they are seen in.
#pragma once

#include <cstddef>
#include <span>

namespace gputrain::data {

/// Returns whether ImageDecoder turns or mirrors this JPEG or PNG file, because of its EXIF orientation.
bool is_turned_upright(std::span<const std::byte> file);

}  // namespace gputrain::data
