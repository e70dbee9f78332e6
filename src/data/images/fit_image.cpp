#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::data {
namespace {

/// Source pixels and weights that make each output pixel, for one axis.
struct Taps {
  struct Output {
    int64_t first = 0;   // source pixel of the first weight
    size_t weights = 0;  // index of the first weight in `all`
    size_t count = 0;
  };
  std::vector<Output> outputs;
  std::vector<float> all;
};

/// Makes taps of `count` pixels from `first` on, where the box [low, high) in source pixels [begin, end) is resized to
/// `full` pixels.
Taps make_taps(double low, double high, int64_t begin, int64_t end, int64_t full, int64_t first, int64_t count) {
  Taps taps;
  taps.outputs.resize(static_cast<size_t>(count));
  const double scale = (high - low) / static_cast<double>(full);
  const double support = std::max(scale, 1.0);  // half the width of the triangle
  for (int64_t i = 0; i < count; ++i) {
    const double center = low + (static_cast<double>(first + i) + 0.5) * scale;
    const int64_t from = std::clamp(static_cast<int64_t>(std::floor(center - support + 0.5)), begin, end - 1);
    const int64_t to = std::clamp(static_cast<int64_t>(std::floor(center + support + 0.5)), from + 1, end);
    Taps::Output& output = taps.outputs[static_cast<size_t>(i)];
    output = {from, taps.all.size(), static_cast<size_t>(to - from)};
    double sum = 0;
    for (int64_t p = from; p < to; ++p) {
      const double weight = std::max(0.0, 1 - std::abs((static_cast<double>(p) + 0.5 - center) / support));
      taps.all.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (size_t w = output.weights; w < taps.all.size(); ++w) taps.all[w] /= static_cast<float>(sum);
  }
  return taps;
}

/// Computes row[i], the weighted sum over source rows, for values [begin, end) of each.
void blend_rows(const ImageView& from, const Taps& taps, const Taps::Output& output, size_t begin, size_t end,
                float* row) {
  const auto stride = static_cast<size_t>(from.width * from.channels);
  const uint8_t* source = from.pixels + static_cast<size_t>(output.first) * stride;
  const float* weights = taps.all.data() + output.weights;
  std::fill(row + begin, row + end, 0.5f);  // makes the cast to uint8, which truncates, round
  size_t t = 0;
  for (; t + 2 <= output.count; t += 2) {
    const uint8_t *upper = source + t * stride, *lower = upper + stride;
    const float a = weights[t], b = weights[t + 1];
    for (size_t i = begin; i < end; ++i) row[i] += a * static_cast<float>(upper[i]) + b * static_cast<float>(lower[i]);
  }
  for (; t < output.count; ++t) {
    const uint8_t* line = source + t * stride;
    const float a = weights[t];
    for (size_t i = begin; i < end; ++i) row[i] += a * static_cast<float>(line[i]);
  }
}

template <size_t Channels>
void blend_columns(const float* row, const Taps& taps, bool flip, uint8_t* to) {
  const size_t count = taps.outputs.size();
  for (size_t x = 0; x < count; ++x) {
    const Taps::Output& output = taps.outputs[flip ? count - 1 - x : x];
    const float* source = row + static_cast<size_t>(output.first) * Channels;
    const float* weights = taps.all.data() + output.weights;
    float sums[Channels] = {};
    for (size_t t = 0; t < output.count; ++t)
      for (size_t c = 0; c < Channels; ++c) sums[c] += weights[t] * source[t * Channels + c];
    for (size_t c = 0; c < Channels; ++c) *to++ = static_cast<uint8_t>(std::min(sums[c], 255.0f));
  }
}

void copy_row(const uint8_t* from, int64_t width, int64_t channels, bool flip, uint8_t* to) {
  if (!flip) {
    std::memcpy(to, from, static_cast<size_t>(width * channels));
    return;
  }
  for (int64_t x = width - 1; x >= 0; --x)
    for (int64_t c = 0; c < channels; ++c) *to++ = from[x * channels + c];
}

/// Part [first, first + count) of the output that shows the image, from `full_first` of the resized image on.
struct Shown {
  int64_t first, full_first, count;
};

Shown shown_part(int64_t offset, int64_t length, int64_t full) {
  const int64_t begin = std::clamp<int64_t>(-offset, 0, length);
  const int64_t end = std::clamp<int64_t>(full - offset, begin, length);
  return {begin, offset + begin, end - begin};
}

bool keeps_size(const Fit& fit, int64_t reduction) {
  return reduction == 1 && fit.full_width == fit.right - fit.left && fit.full_height == fit.bottom - fit.top;
}

void copy_pixels(const ImageView& from, const Fit& fit, const Shown& across, const Shown& down, uint8_t* to) {
  if (!fit.flip && across.count == from.width && across.count == fit.width) {  // rows are contiguous in both
    const int64_t source = (fit.top + down.full_first) * from.width, target = down.first * fit.width;
    std::memcpy(to + target * from.channels, from.pixels + source * from.channels,
                static_cast<size_t>(down.count * from.width * from.channels));
    return;
  }
  const int64_t out_x = fit.flip ? fit.width - across.first - across.count : across.first;
  for (int64_t y = 0; y < down.count; ++y) {
    const int64_t source = (fit.top + down.full_first + y) * from.width + fit.left + across.full_first;
    const int64_t target = (down.first + y) * fit.width + out_x;
    copy_row(from.pixels + source * from.channels, across.count, from.channels, fit.flip, to + target * from.channels);
  }
}

void resample(const ImageView& from, const Fit& fit, int64_t reduction, const Shown& across, const Shown& down,
              uint8_t* to) {
  const double factor = 1.0 / static_cast<double>(reduction);
  const auto axis = [factor](int64_t low, int64_t high, int64_t length, int64_t full, const Shown& shown) {
    const double begin = static_cast<double>(low) * factor;
    const double end = std::min(static_cast<double>(high) * factor, static_cast<double>(length));
    return make_taps(begin, end, static_cast<int64_t>(begin), static_cast<int64_t>(std::ceil(end)), full,
                     shown.full_first, shown.count);
  };
  const Taps columns = axis(fit.left, fit.right, from.width, fit.full_width, across);
  const Taps rows = axis(fit.top, fit.bottom, from.height, fit.full_height, down);
  int64_t low = from.width, high = 0;
  for (const Taps::Output& output : columns.outputs) {
    low = std::min(low, output.first);
    high = std::max(high, output.first + static_cast<int64_t>(output.count));
  }
  thread_local std::vector<float> row;
  row.resize(static_cast<size_t>(from.width * from.channels));
  const int64_t out_x = fit.flip ? fit.width - across.first - across.count : across.first;
  for (int64_t y = 0; y < down.count; ++y) {
    blend_rows(from, rows, rows.outputs[static_cast<size_t>(y)], static_cast<size_t>(low * from.channels),
               static_cast<size_t>(high * from.channels), row.data());
    uint8_t* target = to + ((down.first + y) * fit.width + out_x) * from.channels;
    from.channels == 3 ? blend_columns<3>(row.data(), columns, fit.flip, target)
                       : blend_columns<1>(row.data(), columns, fit.flip, target);
  }
}

/// Returns the source pixel in which the centre of each shown one lies.
std::vector<int64_t> nearest_pixels(int64_t low, int64_t high, int64_t full, const Shown& shown) {
  std::vector<int64_t> pixels;
  for (int64_t i = 0; i < shown.count; ++i) {
    const double twice = static_cast<double>(2 * (shown.full_first + i) + 1) * static_cast<double>(high - low);
    pixels.push_back(std::min(low + static_cast<int64_t>(twice / static_cast<double>(2 * full)), high - 1));
  }
  return pixels;
}

void check_box(const ImageView& from, const Fit& fit, int64_t reduction) {
  GPUTRAIN_ASSERT(fit.left >= 0 && fit.left < fit.right && fit.top >= 0 && fit.top < fit.bottom, "an empty box");
  GPUTRAIN_ASSERT(
      (fit.right + reduction - 1) / reduction <= from.width && (fit.bottom + reduction - 1) / reduction <= from.height,
      "a box outside the image");
}

}  // namespace

void fit_image(const ImageView& from, const Fit& fit, uint8_t* to, int64_t reduction) {
  GPUTRAIN_ASSERT(from.channels == 1 || from.channels == 3, "images are grey or RGB");
  check_box(from, fit, reduction);
  const Shown across = shown_part(fit.x, fit.width, fit.full_width);
  const Shown down = shown_part(fit.y, fit.height, fit.full_height);
  if (across.count < fit.width || down.count < fit.height)
    std::memset(to, 0, static_cast<size_t>(fit.width * fit.height * from.channels));
  if (across.count == 0 || down.count == 0) return;
  if (keeps_size(fit, reduction)) {
    copy_pixels(from, fit, across, down, to);
  } else {
    resample(from, fit, reduction, across, down, to);
  }
}

void fit_mask(const ImageView& from, const Fit& fit, const std::array<int64_t, 256>& class_of, int64_t outside,
              int64_t* to) {
  GPUTRAIN_ASSERT(from.channels == 1, "a mask has one channel");
  check_box(from, fit, 1);
  const Shown across = shown_part(fit.x, fit.width, fit.full_width);
  const Shown down = shown_part(fit.y, fit.height, fit.full_height);
  std::fill(to, to + fit.width * fit.height, outside);
  const std::vector<int64_t> columns = nearest_pixels(fit.left, fit.right, fit.full_width, across);
  const std::vector<int64_t> rows = nearest_pixels(fit.top, fit.bottom, fit.full_height, down);
  for (int64_t y = 0; y < down.count; ++y) {
    const uint8_t* const line = from.pixels + rows[static_cast<size_t>(y)] * from.width;
    int64_t* const target = to + (down.first + y) * fit.width;
    for (int64_t x = 0; x < across.count; ++x) {
      const int64_t place = across.first + x;
      target[fit.flip ? fit.width - 1 - place : place] = class_of[line[columns[static_cast<size_t>(x)]]];
    }
  }
}

}  // namespace gputrain::data
