// Writer of images as PNG files.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::data {

/// Returns the bytes of a PNG file with this image of 1 (grey) or 3 (RGB) channels.
std::string png_of(const ImageView& image);

/// Returns the bytes of a PNG file whose pixels are these numbers, with the palette of PASCAL VOC.
std::string mask_png_of(const uint8_t* numbers, int64_t width, int64_t height);

/// Returns the same of a dataset's sample, whose input must be an image. Throws Error(data) if it cannot be read.
std::string png_of(const Dataset& dataset, int64_t index, const ReadContext& context = {});

/// Returns that of its target, which must be a mask; pixels that do not count are 255.
std::string mask_png_of(const Dataset& dataset, int64_t index, const ReadContext& context = {});

}  // namespace gputrain::data
