// Operations on the bytes of grey or RGB images, in place, of which augmentations are made. Each gives what Pillow
// gives for the same parameters.
#pragma once

#include <array>
#include <cstdint>

#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {

using Colour = std::array<uint8_t, 3>;  // for grey images, the first value counts

/// Returns the colour that becomes 0 when the image is normalised, rounded to bytes.
Colour mean_colour(const Pixels& pixels);

/// Adjusts like Pillow's ImageEnhance.Brightness, Contrast, Color and Sharpness: a factor of 0 gives black, grey of the
/// mean, the grey image or the smoothed image; 1 gives the image; others lie between or beyond.
void brightness(const Pixels& pixels, double factor);
void contrast(const Pixels& pixels, double factor);
void saturation(const Pixels& pixels, double factor);
void sharpness(const Pixels& pixels, double factor);

/// Turns the hue by this fraction of a circle, -0.5 to 0.5, like torchvision's adjust_hue.
void hue(const Pixels& pixels, double turn);
/// Sets all channels to the brightness of the pixel.
void grey(const Pixels& pixels);

void posterize(const Pixels& pixels, int64_t bits);         // keeps the upper bits, 0 to 8
void solarize(const Pixels& pixels, double threshold);      // inverts values from the threshold on
void solarize_add(const Pixels& pixels, int64_t addition);  // adds up to 128 to values below 128
void invert(const Pixels& pixels);
void auto_contrast(const Pixels& pixels);  // stretches each channel to 0 to 255
void equalize(const Pixels& pixels);       // equalizes the histogram of each channel

/// Affine map: output pixel (x, y) shows the place (xx * x + xy * y + x0, yx * x + yy * y + y0) of the image; centres
/// of pixels are at halves.
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  /// Returns a rotation around the centre, counterclockwise.
  static Affine rotation(double degrees, int64_t width, int64_t height);
};

/// Transforms like Pillow's Image.transform: pixels from outside of the image become `outside`. nearest gives the same
/// bytes; bilinear and bicubic differ by 1 where Pillow's value lies close below a whole number.
void transform(const Pixels& pixels, const Affine& affine, Filter filter, const Colour& outside);

}  // namespace gputrain::data
