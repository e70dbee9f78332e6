// Mixing of the images of a micro-batch in pairs, in place.
#pragma once

#include <cstdint>

#include "gputrain/core/random.hpp"
#include "gputrain/data/mixing.hpp"

namespace gputrain::data {

/// One draw of how the images of a micro-batch are mixed.
struct Mixing {
  double part = 1;  // part of the image itself; 1: not mixed
  bool cuts = false;
  int64_t left = 0, top = 0, right = 0, bottom = 0;  // rectangle of the other image, if it cuts
};

/// Draws like timm's Mixup in mode "batch".
Mixing draw_mixing(const MixOptions& options, RandomStream& random, int64_t height, int64_t width);

/// Mixes row i of [rows, height, width, channels] with row `rows` - 1 - i.
void mix_rows(const Mixing& mixing, uint8_t* values, int64_t rows, int64_t height, int64_t width, int64_t channels);

}  // namespace gputrain::data
