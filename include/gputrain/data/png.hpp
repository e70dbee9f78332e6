// Writes images as PNG files.
#pragma once

#include <string>

#include "gputrain/data/image.hpp"

namespace gputrain::data {

/// The bytes of a PNG file with this image of 1 (grey) or 3 (RGB) channels.
std::string png_of(const ImageView& image);

}  // namespace gputrain::data
