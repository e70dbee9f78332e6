// Affine transforms of bytes. Images are small: an image with its border in fp32 stays in a core's cache, and four
// channels of a pixel, of which three count, are one vector.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <vector>

#include "pixel_ops.hpp"

namespace gputrain::data {
namespace {

using Lanes [[gnu::vector_size(16)]] = float;
using WholeLanes [[gnu::vector_size(16)]] = int32_t;

constexpr int64_t kBorder = 2;  // the widest filter reads two pixels beyond the image

/// The image in fp32, with its outermost pixels repeated.
struct BorderedImage {
  const Lanes* at(int64_t x, int64_t y) const { return lanes + (y + kBorder) * stride + x + kBorder; }

  Lanes* lanes;
  int64_t stride;
};

template <size_t Channels>
BorderedImage with_border(const Pixels& pixels) {
  thread_local std::vector<Lanes> memory;
  const BorderedImage image{nullptr, pixels.width + 2 * kBorder};
  const auto needed = static_cast<size_t>(image.stride * (pixels.height + 2 * kBorder));
  if (memory.size() < needed) memory.resize(needed);
  Lanes* const all = memory.data();
  for (int64_t y = 0; y < pixels.height; ++y) {
    const uint8_t* from = pixels.values + y * pixels.width * static_cast<int64_t>(Channels);
    Lanes* const row = all + (y + kBorder) * image.stride;
    for (int64_t x = 0; x < pixels.width; ++x, from += Channels) {
      Lanes pixel{};
      for (size_t c = 0; c < Channels; ++c) pixel[c] = static_cast<float>(from[c]);
      row[x + kBorder] = pixel;
    }
    std::fill_n(row, kBorder, row[kBorder]);
    std::fill_n(row + kBorder + pixels.width, kBorder, row[kBorder + pixels.width - 1]);
  }
  const auto repeat = [&](int64_t from, int64_t to) {
    std::copy_n(all + from * image.stride, image.stride, all + to * image.stride);
  };
  for (int64_t i = 0; i < kBorder; ++i) {
    repeat(kBorder, i);
    repeat(kBorder + pixels.height - 1, kBorder + pixels.height + i);
  }
  return {all, image.stride};
}

Lanes all_of(float value) { return Lanes{value, value, value, value}; }

/// Returns the weights of the pixels at -1, 0, 1 and 2 for a place `part` of the way from 0 to 1: a cubic, slope -1.
Lanes cubic_weights(float part) {
  constexpr Lanes kConstant{0, 1, 0, 0}, kLinear{-1, 0, 1, 0}, kSquare{2, -2, 1, -1}, kCube{-1, 1, -1, 1};
  const Lanes d = all_of(part);
  return kConstant + d * (kLinear + d * (kSquare + d * kCube));
}

template <Filter kFilter>
Lanes value_at(const BorderedImage& image, double x, double y) {
  const double left = std::floor(x - 0.5), top = std::floor(y - 0.5);
  const auto across = static_cast<float>(x - 0.5 - left), down = static_cast<float>(y - 0.5 - top);
  const auto column = static_cast<int64_t>(left), row = static_cast<int64_t>(top);
  if constexpr (kFilter == Filter::bilinear) {
    const Lanes *const upper = image.at(column, row), *const lower = upper + image.stride;
    const Lanes right = all_of(across);
    const Lanes above = upper[0] + (upper[1] - upper[0]) * right, below = lower[0] + (lower[1] - lower[0]) * right;
    return above + (below - above) * all_of(down);
  } else {
    const Lanes columns = cubic_weights(across), rows = cubic_weights(down);
    const Lanes* from = image.at(column - 1, row - 1);
    Lanes sum{};
    for (size_t r = 0; r < 4; ++r, from += image.stride)
      sum += (from[0] * all_of(columns[0]) + from[1] * all_of(columns[1]) + from[2] * all_of(columns[2]) +
              from[3] * all_of(columns[3])) *
             all_of(rows[r]);
    return sum;
  }
}

template <size_t Channels>
void write(Lanes value, uint8_t* to) {
  // Pillow rounds down. Sums of weights are not quite 1 in fp32, and flat areas must keep their value.
  constexpr float kRounding = 1.0f / 1024;
  value += all_of(kRounding);
  const Lanes low = value > all_of(0) ? value : all_of(0);
  const Lanes clipped = low < all_of(255) ? low : all_of(255);
  const WholeLanes whole = __builtin_convertvector(clipped, WholeLanes);
  for (size_t c = 0; c < Channels; ++c) to[c] = static_cast<uint8_t>(whole[c]);
}

template <Filter kFilter, size_t Channels>
void transform_smoothly(const Pixels& pixels, const Affine& a, const Colour& outside) {
  const BorderedImage image = with_border<Channels>(pixels);
  const auto width = static_cast<double>(pixels.width), height = static_cast<double>(pixels.height);
  uint8_t* to = pixels.values;
  for (int64_t row = 0; row < pixels.height; ++row) {
    const double y = static_cast<double>(row) + 0.5;
    for (int64_t column = 0; column < pixels.width; ++column, to += Channels) {
      const double x = static_cast<double>(column) + 0.5;
      const double from_x = a.xx * x + a.xy * y + a.x0, from_y = a.yx * x + a.yy * y + a.y0;
      if (from_x >= 0 && from_x < width && from_y >= 0 && from_y < height) {
        write<Channels>(value_at<kFilter>(image, from_x, from_y), to);
      } else {
        std::memcpy(to, outside.data(), Channels);
      }
    }
  }
}

/// Computes with 16 bits after the point, like Pillow.
template <size_t Channels>
void transform_to_nearest(const Pixels& pixels, const Affine& a, const Colour& outside) {
  thread_local std::vector<uint8_t> original;
  original.assign(pixels.values, pixels.values + pixels.width * pixels.height * pixels.channels);
  const auto fixed = [](double value) { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); };
  const int64_t xx = fixed(a.xx), yx = fixed(a.yx), xy = fixed(a.xy), yy = fixed(a.yy);
  const int64_t x0 = fixed(a.x0 + a.xx * 0.5 + a.xy * 0.5), y0 = fixed(a.y0 + a.yx * 0.5 + a.yy * 0.5);
  uint8_t* to = pixels.values;
  for (int64_t row = 0; row < pixels.height; ++row) {
    for (int64_t column = 0; column < pixels.width; ++column, to += Channels) {
      const int64_t x = (x0 + row * xy + column * xx) >> 16, y = (y0 + row * yy + column * yx) >> 16;
      const bool is_inside = x >= 0 && x < pixels.width && y >= 0 && y < pixels.height;
      const auto from = static_cast<size_t>(y * pixels.width + x) * Channels;
      std::memcpy(to, is_inside ? original.data() + from : outside.data(), Channels);
    }
  }
}

template <size_t Channels>
void transform_channels(const Pixels& pixels, const Affine& affine, Filter filter, const Colour& outside) {
  switch (filter) {
    case Filter::nearest:
      return transform_to_nearest<Channels>(pixels, affine, outside);
    case Filter::bilinear:
      return transform_smoothly<Filter::bilinear, Channels>(pixels, affine, outside);
    case Filter::bicubic:
      return transform_smoothly<Filter::bicubic, Channels>(pixels, affine, outside);
  }
}

}  // namespace

Affine Affine::rotation(double degrees, int64_t width, int64_t height) {
  const double angle = -(degrees - 360 * std::floor(degrees / 360)) * std::numbers::pi / 180;
  const auto rounded = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };  // like Pillow
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  const double x = static_cast<double>(width) / 2, y = static_cast<double>(height) / 2;
  return {.xx = cosine,
          .xy = sine,
          .x0 = cosine * -x + sine * -y + x,
          .yx = -sine,
          .yy = cosine,
          .y0 = -sine * -x + cosine * -y + y};
}

void transform(const Pixels& pixels, const Affine& affine, Filter filter, const Colour& outside) {
  pixels.channels == 3 ? transform_channels<3>(pixels, affine, filter, outside)
                       : transform_channels<1>(pixels, affine, filter, outside);
}

}  // namespace gputrain::data
