#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::data {
namespace {

/// Source pixels and weights that make each output pixel, for one axis.
template <class Weight>
struct Taps {
  struct Output {
    int64_t first = 0;   // source pixel of the first weight
    size_t weights = 0;  // index of the first weight in `all`
    size_t count = 0;
  };
  std::vector<Output> outputs;
  std::vector<Weight> all;
};

/// Kernel of bilinear resizing: weights by the distance from `center`, in pixels of the output where those are larger.
struct Triangle {
  using Weight = float;
  static constexpr double kRadius = 1;

  static double weight(double pixel, double center, double stretch) {
    return std::max(0.0, 1 - std::abs((pixel + 0.5 - center) / stretch));
  }
  static float stored(double weight, double sum) { return static_cast<float>(weight) / static_cast<float>(sum); }
};

/// Kernel of bicubic resizing, with the arithmetic of Pillow: a = -0.5, sums with kFraction bits after the point.
struct Cubic {
  using Weight = int32_t;
  static constexpr double kRadius = 2;
  static constexpr int kFraction = 22;

  static double weight(double pixel, double center, double stretch) {
    constexpr double a = -0.5;
    const double x = std::abs((pixel - center + 0.5) * (1 / stretch));
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
  }
  static int32_t stored(double weight, double sum) {
    const double share = weight / sum * (1 << kFraction);
    return static_cast<int32_t>(share < 0 ? share - 0.5 : share + 0.5);
  }
  static uint8_t byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFraction, 0, 255)); }
};

/// Makes taps of `count` pixels from `first` on, where the box [low, high) in source pixels [begin, end) is resized to
/// `full` pixels.
template <class Kernel>
Taps<typename Kernel::Weight> make_taps(double low, double high, int64_t begin, int64_t end, int64_t full,
                                        int64_t first, int64_t count) {
  Taps<typename Kernel::Weight> taps;
  taps.outputs.resize(static_cast<size_t>(count));
  const double scale = (high - low) / static_cast<double>(full);
  const double stretch = std::max(scale, 1.0), support = Kernel::kRadius * stretch;
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double center = low + (static_cast<double>(first + i) + 0.5) * scale;
    const int64_t from = std::clamp(static_cast<int64_t>(std::floor(center - support + 0.5)), begin, end - 1);
    const int64_t to = std::clamp(static_cast<int64_t>(std::floor(center + support + 0.5)), from + 1, end);
    taps.outputs[static_cast<size_t>(i)] = {from, taps.all.size(), static_cast<size_t>(to - from)};
    weights.clear();
    double sum = 0;
    for (int64_t p = from; p < to; ++p) {
      weights.push_back(Kernel::weight(static_cast<double>(p), center, stretch));
      sum += weights.back();
    }
    for (const double weight : weights) taps.all.push_back(Kernel::stored(weight, sum));
  }
  return taps;
}

/// Range of source pixels that taps read.
struct Span {
  int64_t low, high;
};

template <class Weight>
Span span_of(const Taps<Weight>& taps) {
  Span span{INT64_MAX, 0};
  for (const auto& output : taps.outputs) {
    span.low = std::min(span.low, output.first);
    span.high = std::max(span.high, output.first + static_cast<int64_t>(output.count));
  }
  return span;
}

/// Computes row[i], the weighted sum over source rows, for values [begin, end) of each.
void blend_rows(const ImageView& from, const Taps<float>& taps, const Taps<float>::Output& output, size_t begin,
                size_t end, float* row) {
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
void blend_columns(const float* row, const Taps<float>& taps, bool flip, uint8_t* to) {
  const size_t count = taps.outputs.size();
  for (size_t x = 0; x < count; ++x) {
    const auto& output = taps.outputs[flip ? count - 1 - x : x];
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

/// The box on one axis of an image that is smaller by `reduction` than the box's.
struct Box {
  Box(int64_t box_low, int64_t box_high, int64_t length, int64_t reduction)
      : low(static_cast<double>(box_low) / static_cast<double>(reduction)),
        high(std::min(static_cast<double>(box_high) / static_cast<double>(reduction), static_cast<double>(length))) {}

  double low, high;
};

void resample(const ImageView& from, const Fit& fit, int64_t reduction, const Shown& across, const Shown& down,
              uint8_t* to) {
  const auto axis = [](const Box& box, int64_t full, const Shown& shown) {
    return make_taps<Triangle>(box.low, box.high, static_cast<int64_t>(box.low),
                               static_cast<int64_t>(std::ceil(box.high)), full, shown.full_first, shown.count);
  };
  const Taps<float> columns = axis({fit.left, fit.right, from.width, reduction}, fit.full_width, across);
  const Taps<float> rows = axis({fit.top, fit.bottom, from.height, reduction}, fit.full_height, down);
  const auto [low, high] = span_of(columns);
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

/// Lines of bytes, `stride` apart.
template <class Byte>
struct Lines {
  Byte* operator[](int64_t y) const { return first + y * stride; }

  Byte* first;
  int64_t stride;
};

template <size_t Channels>
void blend_columns_cubic(const uint8_t* row, const Taps<int32_t>& taps, bool flip, uint8_t* to) {
  const size_t count = taps.outputs.size();
  for (size_t x = 0; x < count; ++x) {
    const auto& output = taps.outputs[flip ? count - 1 - x : x];
    const uint8_t* source = row + static_cast<size_t>(output.first) * Channels;
    const int32_t* weights = taps.all.data() + output.weights;
    int32_t sums[Channels];
    std::fill_n(sums, Channels, 1 << (Cubic::kFraction - 1));
    for (size_t t = 0; t < output.count; ++t)
      for (size_t c = 0; c < Channels; ++c) sums[c] += weights[t] * source[t * Channels + c];
    for (size_t c = 0; c < Channels; ++c) *to++ = Cubic::byte(sums[c]);
  }
}

/// Makes lines of `width` bytes, one for each output of `taps`.
void blend_rows_cubic(const Lines<const uint8_t>& from, const Taps<int32_t>& taps, size_t width,
                      const Lines<uint8_t>& to) {
  thread_local std::vector<int32_t> sums;
  for (size_t y = 0; y < taps.outputs.size(); ++y) {
    const auto& output = taps.outputs[y];
    sums.assign(width, 1 << (Cubic::kFraction - 1));
    for (size_t t = 0; t < output.count; ++t) {
      const uint8_t* const line = from[output.first + static_cast<int64_t>(t)];
      const int32_t weight = taps.all[output.weights + t];
      for (size_t i = 0; i < width; ++i) sums[i] += weight * line[i];
    }
    uint8_t* const target = to[static_cast<int64_t>(y)];
    for (size_t i = 0; i < width; ++i) target[i] = Cubic::byte(sums[i]);
  }
}

/// Resizes one axis to bytes, then the other, like Pillow from version 13 on.
void resample_cubic(const ImageView& from, const Fit& fit, int64_t reduction, const Shown& across, const Shown& down,
                    uint8_t* to) {
  const auto axis = [](const Box& box, int64_t full, const Shown& shown) {
    const double begin = std::floor(box.low);  // Pillow computes within the box
    auto taps =
        make_taps<Cubic>(box.low - begin, box.high - begin, 0, static_cast<int64_t>(std::ceil(box.high - begin)), full,
                         shown.full_first, shown.count);
    for (auto& output : taps.outputs) output.first += static_cast<int64_t>(begin);
    return taps;
  };
  const Box box_across(fit.left, fit.right, from.width, reduction),
      box_down(fit.top, fit.bottom, from.height, reduction);
  Taps<int32_t> columns = axis(box_across, fit.full_width, across), rows = axis(box_down, fit.full_height, down);
  const int64_t channels = from.channels, shown_bytes = across.count * channels;
  const int64_t out_x = fit.flip ? fit.width - across.first - across.count : across.first;
  const Lines<uint8_t> target{to + (down.first * fit.width + out_x) * channels, fit.width * channels};
  const Lines<const uint8_t> source{from.pixels, from.width * channels};
  const auto blend_columns = [&](const uint8_t* row, uint8_t* out) {
    channels == 3 ? blend_columns_cubic<3>(row, columns, fit.flip, out)
                  : blend_columns_cubic<1>(row, columns, fit.flip, out);
  };
  thread_local std::vector<uint8_t> between;
  const double loses_rows = box_down.high - box_down.low - static_cast<double>(fit.full_height);
  const double loses_columns = box_across.high - box_across.low - static_cast<double>(fit.full_width);
  if (loses_rows > 0 && loses_rows > 2 * loses_columns) {
    const auto [low, high] = span_of(columns);
    for (auto& output : columns.outputs) output.first -= low;
    const int64_t width = (high - low) * channels;
    between.resize(static_cast<size_t>(down.count * width));
    blend_rows_cubic({source.first + low * channels, source.stride}, rows, static_cast<size_t>(width),
                     {between.data(), width});
    for (int64_t y = 0; y < down.count; ++y) blend_columns(between.data() + y * width, target[y]);
    return;
  }
  const auto [low, high] = span_of(rows);
  for (auto& output : rows.outputs) output.first -= low;
  between.resize(static_cast<size_t>((high - low) * shown_bytes));
  for (int64_t y = low; y < high; ++y) blend_columns(source[y], between.data() + (y - low) * shown_bytes);
  blend_rows_cubic({between.data(), shown_bytes}, rows, static_cast<size_t>(shown_bytes), target);
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
  } else if (fit.filter == Filter::bicubic) {
    resample_cubic(from, fit, reduction, across, down, to);
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
