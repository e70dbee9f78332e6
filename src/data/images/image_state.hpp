// Functions that the JPEG and PNG decoders share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gputrain/data/image.hpp"

namespace gputrain::data {

[[noreturn]] void throw_bad_image(const std::string& name, const std::string& what);

/// Throws for sizes that are not positive or that exceed kMostPixels.
void check_image_size(int64_t width, int64_t height, const std::string& name);

/// Converts RGB to grey by ITU-R 601, like Pillow's convert("L").
uint8_t grey_of(int red, int green, int blue);

/// Returns the orientation in an EXIF block, 1 (upright) to 8; 1 if there is none or it is invalid.
int orientation_of(std::span<const std::byte> exif);

/// Writes `from`, rotated and mirrored to be upright, into `to`.
void apply_orientation(const ImageView& from, int orientation, std::vector<uint8_t>& to);

inline bool swaps_sides(int orientation) { return orientation >= 5; }

}  // namespace gputrain::data
