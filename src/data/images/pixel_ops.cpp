#include "pixel_ops.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {
namespace {

using ByteTable = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

int64_t row_bytes(const Pixels& pixels) { return pixels.width * pixels.channels; }
int64_t byte_count(const Pixels& pixels) { return row_bytes(pixels) * pixels.height; }

void look_up(const Pixels& pixels, const ByteTable& table) {
  uint8_t* const values = pixels.values;
  const int64_t count = byte_count(pixels);
  for (int64_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

/// Maps each channel by the table that `make` makes of its histogram.
template <class Make>
void look_up_by_histogram(const Pixels& pixels, const Make& make) {
  const auto channels = static_cast<size_t>(pixels.channels);
  uint8_t* const values = pixels.values;
  const auto count = static_cast<size_t>(byte_count(pixels));
  // Two histograms for each channel in turn: with one, equal neighbours would wait for each other's increment.
  std::array<std::array<uint32_t, 256>, 6> counts{};
  size_t i = 0;
  for (; i + 2 * channels <= count; i += 2 * channels)
    for (size_t lane = 0; lane < 2 * channels; ++lane) ++counts[lane][values[i + lane]];
  for (size_t lane = 0; i + lane < count; ++lane) ++counts[lane][values[i + lane]];
  std::array<ByteTable, 3> tables;
  for (size_t c = 0; c < channels; ++c) {
    Histogram histogram;
    for (size_t value = 0; value < 256; ++value)
      histogram[value] = int64_t{counts[c][value]} + counts[c + channels][value];
    tables[c] = make(histogram);
  }
  for (i = 0; i < count; i += channels)
    for (size_t c = 0; c < channels; ++c) values[i + c] = tables[c][values[i + c]];
}

ByteTable unchanged() {
  ByteTable table;
  std::iota(table.begin(), table.end(), uint8_t{0});
  return table;
}

/// Blends like Pillow's Image.blend: in fp32, rounded down.
uint8_t blended(uint8_t from, uint8_t to, float part) {
  const float value = static_cast<float>(from) + part * static_cast<float>(int{to} - int{from});
  return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

void blend_with(const Pixels& pixels, uint8_t from, double part) {
  ByteTable table;
  for (size_t value = 0; value < 256; ++value)
    table[value] = blended(from, static_cast<uint8_t>(value), static_cast<float>(part));
  look_up(pixels, table);
}

void blend_values(const uint8_t* from, uint8_t* to, int64_t count, double part) {
  const auto factor = static_cast<float>(part);
  for (int64_t i = 0; i < count; ++i) to[i] = blended(from[i], to[i], factor);
}

uint8_t brightness_of(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);  // inlined grey_of()
}

std::vector<uint8_t>& scratch_of(int64_t bytes) {
  thread_local std::vector<uint8_t> scratch;
  if (std::ssize(scratch) < bytes) scratch.resize(static_cast<size_t>(bytes));
  return scratch;
}

/// Smooths the inner values of a row like Pillow's ImageFilter.SMOOTH: weight 5 for the pixel, 1 for each neighbour.
void smooth_row(const uint8_t* above, const uint8_t* row, const uint8_t* below, int64_t channels, int64_t begin,
                int64_t end, uint8_t* to) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t left = i - channels, right = i + channels;
    const int around =
        above[left] + above[i] + above[right] + row[left] + row[right] + below[left] + below[i] + below[right];
    const auto sum = static_cast<uint32_t>(around + 5 * row[i]);
    to[i] = static_cast<uint8_t>(((sum + 6) * 5042) >> 16);  // sum / 13, rounded; exact for all sums
  }
}

struct HueSaturation {
  uint8_t hue, saturation, value;
};

/// Converts to HSV like Pillow, each in 0 to 255.
HueSaturation to_hsv(const uint8_t* rgb) {
  const auto [low, high] = std::minmax({rgb[0], rgb[1], rgb[2]});
  if (low == high) return {0, 0, high};
  const auto range = static_cast<float>(high - low);
  const auto below = [&](size_t c) { return static_cast<float>(high - rgb[c]) / range; };
  float sixths = 0;
  if (rgb[0] == high) {
    sixths = below(2) - below(1);
  } else if (rgb[1] == high) {
    sixths = static_cast<float>(2.0 + double{below(0)} - double{below(2)});
  } else {
    sixths = static_cast<float>(4.0 + double{below(1)} - double{below(0)});
  }
  const auto turn = static_cast<float>(std::fmod(double{sixths} / 6.0 + 1.0, 1.0));
  return {static_cast<uint8_t>(double{turn} * 255.0),
          static_cast<uint8_t>(double{range / static_cast<float>(high)} * 255.0), high};
}

void to_rgb(const HueSaturation& from, uint8_t* rgb) {
  const auto [hue, saturation, value] = from;
  if (saturation == 0) {
    std::fill_n(rgb, 3, value);
    return;
  }
  const double sixths = hue * 6.0 / 255.0, whole = std::floor(sixths);
  const auto part = static_cast<float>(sixths - whole), strength = static_cast<float>(saturation / 255.0);
  const auto weaker = [&value = value](double loss) {
    return static_cast<uint8_t>(std::clamp(std::round(value * (1.0 - loss)), 0.0, 255.0));
  };
  const uint8_t low = weaker(double{strength}), falling = weaker(double{strength * part});
  const uint8_t rising = weaker(double{strength} * (1.0 - double{part}));
  const std::array<std::array<uint8_t, 3>, 6> colours{{{value, rising, low},
                                                       {falling, value, low},
                                                       {low, value, rising},
                                                       {low, falling, value},
                                                       {rising, low, value},
                                                       {value, low, falling}}};
  std::ranges::copy(colours[static_cast<size_t>(whole) % 6], rgb);
}

}  // namespace

Colour mean_colour(const Pixels& pixels) {
  Colour colour{};
  for (size_t c = 0; pixels.statistics != nullptr && c < pixels.statistics->mean.size(); ++c)
    colour[c] = static_cast<uint8_t>(std::clamp(std::nearbyint(255 * pixels.statistics->mean[c]), 0.0, 255.0));
  return colour;
}

void brightness(const Pixels& pixels, double factor) { blend_with(pixels, 0, factor); }

void contrast(const Pixels& pixels, double factor) {
  const int64_t count = pixels.width * pixels.height;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += pixels.channels == 3 ? brightness_of(pixels.values + 3 * i) : pixels.values[i];
  const double mean = static_cast<double>(sum) / static_cast<double>(count);
  blend_with(pixels, static_cast<uint8_t>(mean + 0.5), factor);
}

void saturation(const Pixels& pixels, double factor) {
  if (pixels.channels != 3) return;
  uint8_t* const greys = scratch_of(row_bytes(pixels)).data();
  for (int64_t y = 0; y < pixels.height; ++y) {
    uint8_t* const row = pixels.values + y * row_bytes(pixels);
    for (int64_t x = 0; x < pixels.width; ++x) std::fill_n(greys + 3 * x, 3, brightness_of(row + 3 * x));
    blend_values(greys, row, row_bytes(pixels), factor);
  }
}

void sharpness(const Pixels& pixels, double factor) {
  const int64_t row = row_bytes(pixels), channels = pixels.channels;
  if (pixels.width < 3 || pixels.height < 3) return;  // Pillow leaves the border as it is
  uint8_t* const original = scratch_of(byte_count(pixels) + row).data();
  uint8_t* const smooth = original + byte_count(pixels);
  std::copy_n(pixels.values, byte_count(pixels), original);
  for (int64_t y = 1; y + 1 < pixels.height; ++y) {
    const uint8_t* const from = original + y * row;
    smooth_row(from - row, from, from + row, channels, channels, row - channels, smooth);
    blend_values(smooth + channels, pixels.values + y * row + channels, row - 2 * channels, factor);
  }
}

void hue(const Pixels& pixels, double turn) {
  if (pixels.channels != 3) return;
  const auto shift = static_cast<uint8_t>(static_cast<int>(turn * 255));
  for (int64_t i = 0; i < byte_count(pixels); i += 3) {
    HueSaturation colour = to_hsv(pixels.values + i);
    colour.hue = static_cast<uint8_t>(colour.hue + shift);
    to_rgb(colour, pixels.values + i);
  }
}

void grey(const Pixels& pixels) {
  if (pixels.channels != 3) return;
  for (int64_t i = 0; i < byte_count(pixels); i += 3)
    std::fill_n(pixels.values + i, 3, brightness_of(pixels.values + i));
}

void posterize(const Pixels& pixels, int64_t bits) {
  const auto mask = static_cast<uint8_t>(0xff00 >> std::clamp<int64_t>(bits, 0, 8));
  uint8_t* const values = pixels.values;
  for (int64_t i = 0, count = byte_count(pixels); i < count; ++i) values[i] &= mask;
}

void solarize(const Pixels& pixels, double threshold) {
  const auto first = static_cast<int>(std::ceil(std::clamp(threshold, 0.0, 256.0)));
  if (first == 0) return invert(pixels);
  const auto last_kept = static_cast<uint8_t>(first - 1);
  uint8_t* const values = pixels.values;
  for (int64_t i = 0, count = byte_count(pixels); i < count; ++i)
    values[i] = values[i] <= last_kept ? values[i] : static_cast<uint8_t>(255 - values[i]);
}

void solarize_add(const Pixels& pixels, int64_t addition) {
  const auto added = static_cast<uint8_t>(std::clamp<int64_t>(addition, 0, 128));
  uint8_t* const values = pixels.values;
  for (int64_t i = 0, count = byte_count(pixels); i < count; ++i)
    values[i] = values[i] < 128 ? static_cast<uint8_t>(values[i] + added) : values[i];
}

void invert(const Pixels& pixels) {
  uint8_t* const values = pixels.values;
  for (int64_t i = 0, count = byte_count(pixels); i < count; ++i) values[i] = static_cast<uint8_t>(255 - values[i]);
}

void auto_contrast(const Pixels& pixels) {
  look_up_by_histogram(pixels, [](const Histogram& histogram) {
    ByteTable table = unchanged();
    const auto is_used = [](int64_t count) { return count > 0; };
    const auto low = std::ranges::find_if(histogram, is_used) - histogram.begin();
    const auto high = 255 - (std::find_if(histogram.rbegin(), histogram.rend(), is_used) - histogram.rbegin());
    if (high <= low) return table;
    const double scale = 255.0 / static_cast<double>(high - low), offset = -static_cast<double>(low) * scale;
    for (size_t value = 0; value < 256; ++value)
      table[value] = static_cast<uint8_t>(std::clamp(static_cast<double>(value) * scale + offset, 0.0, 255.0));
    return table;
  });
}

void equalize(const Pixels& pixels) {
  look_up_by_histogram(pixels, [](const Histogram& histogram) {
    ByteTable table = unchanged();
    const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count > 0; });
    const int64_t all = std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
    const int64_t step = (all - *last) / 255;
    if (step == 0) return table;
    int64_t sum = step / 2;
    for (size_t value = 0; value < 256; ++value) {
      table[value] = static_cast<uint8_t>(std::min<int64_t>(255, sum / step));
      sum += histogram[value];
    }
    return table;
  });
}

}  // namespace gputrain::data
