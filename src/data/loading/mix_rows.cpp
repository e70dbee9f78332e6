#include "mix_rows.hpp"

#include <algorithm>
#include <cmath>

#include "../draw_beta.hpp"

namespace gputrain::data {
namespace {

void blend_pair(double part, uint8_t* first, uint8_t* second, int64_t count) {
  const auto own = static_cast<float>(part), other = static_cast<float>(1 - part);
  for (int64_t i = 0; i < count; ++i) {
    const auto a = static_cast<float>(first[i]), b = static_cast<float>(second[i]);
    first[i] = static_cast<uint8_t>(static_cast<int32_t>(own * a + other * b + 0.5f));
    second[i] = static_cast<uint8_t>(static_cast<int32_t>(own * b + other * a + 0.5f));
  }
}

}  // namespace

Mixing draw_mixing(const MixOptions& options, RandomStream& random, int64_t height, int64_t width) {
  Mixing mixing;
  if (random.uniform() >= options.probability) return mixing;
  mixing.cuts = options.mixup == 0 || (options.cutmix > 0 && random.uniform() < options.switch_probability);
  mixing.part = draw_beta(random, mixing.cuts ? options.cutmix : options.mixup);
  if (!mixing.cuts) return mixing;
  const double side = std::sqrt(1 - mixing.part);
  const auto down = static_cast<int64_t>(side * static_cast<double>(height));
  const auto across = static_cast<int64_t>(side * static_cast<double>(width));
  const int64_t y = random.below(height), x = random.below(width);
  mixing.top = std::clamp<int64_t>(y - down / 2, 0, height);
  mixing.bottom = std::clamp<int64_t>(y + (down + 1) / 2, 0, height);
  mixing.left = std::clamp<int64_t>(x - across / 2, 0, width);
  mixing.right = std::clamp<int64_t>(x + (across + 1) / 2, 0, width);
  const int64_t area = (mixing.bottom - mixing.top) * (mixing.right - mixing.left);
  mixing.part = 1 - static_cast<double>(area) / static_cast<double>(height * width);  // its area is less at the border
  return mixing;
}

void mix_rows(const Mixing& mixing, uint8_t* values, int64_t rows, int64_t height, int64_t width, int64_t channels) {
  const int64_t line = width * channels, image = height * line;
  for (int64_t i = 0; i < rows / 2; ++i) {
    uint8_t *const first = values + i * image, *const second = values + (rows - 1 - i) * image;
    if (!mixing.cuts) {
      blend_pair(mixing.part, first, second, image);
      continue;
    }
    for (int64_t y = mixing.top; y < mixing.bottom; ++y) {
      const int64_t begin = y * line + mixing.left * channels, end = y * line + mixing.right * channels;
      std::swap_ranges(first + begin, first + end, second + begin);
    }
  }
}

}  // namespace gputrain::data
