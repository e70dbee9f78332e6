// Writes images as PNG files.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::data {

/// The bytes of a PNG file with this image of 1 (grey) or 3 (RGB) channels.
std::string png_of(const ImageView& image);

/// The same of a dataset's sample, whose input must be an image. Throws Error(data) if it cannot be read.
std::string png_of(const Dataset& dataset, int64_t index, const ReadContext& context = {});

}  // namespace gputrain::data
