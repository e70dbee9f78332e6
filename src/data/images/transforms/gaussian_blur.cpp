// Gaussian blur like torchvision's GaussianBlur(23), as timm has it: 23 weights on each axis, the image mirrored at its
// borders.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {
namespace {

struct GaussianBlurSpec {
  double probability = 0;

  static void describe(config::Description<GaussianBlurSpec>& d) {
    d.key("gaussian_blur", &GaussianBlurSpec::probability,
          "probability that an image is blurred, with a deviation of 0.1 to 2 pixels")
        .range(0, 1)
        .aliases({"gaussian_blur_prob"});
  }
};

constexpr int64_t kRadius = 11;
using Weights = std::array<float, 2 * kRadius + 1>;

Weights weights_of(double deviation) {
  Weights weights{};
  double sum = 0;
  const auto at = [deviation](int64_t distance) {
    const double x = static_cast<double>(distance) / deviation;
    return std::exp(-0.5 * x * x);
  };
  for (int64_t i = -kRadius; i <= kRadius; ++i) sum += at(i);
  for (int64_t i = -kRadius; i <= kRadius; ++i)
    weights[static_cast<size_t>(i + kRadius)] = static_cast<float>(at(i) / sum);
  return weights;
}

/// Returns the pixel that stands `place` pixels from the first, before and after the image too.
int64_t mirrored(int64_t place, int64_t length) {
  if (length == 1) return 0;
  const int64_t period = 2 * (length - 1), within = ((place % period) + period) % period;
  return std::min(within, period - within);
}

/// Blurs along one axis: `length` lines of `values` values each, `step` apart, or the values of a line.
void blur(const std::vector<float>& from, const Weights& weights, int64_t lines, int64_t length, int64_t step,
          std::vector<float>& to) {
  std::fill(to.begin(), to.end(), 0.0f);
  for (int64_t line = 0; line < lines; ++line) {
    const float* const source = from.data() + line * length * step;
    float* const target = to.data() + line * length * step;
    for (int64_t i = 0; i < length; ++i)
      for (int64_t d = -kRadius; d <= kRadius; ++d) {
        const float* const other = source + mirrored(i + d, length) * step;
        const float weight = weights[static_cast<size_t>(d + kRadius)];
        for (int64_t value = 0; value < step; ++value) target[i * step + value] += weight * other[value];
      }
  }
}

class GaussianBlur final : public Augmentation {
 public:
  explicit GaussianBlur(const GaussianBlurSpec& spec) : probability_(spec.probability) {}

  bool is_on() const override { return probability_ > 0; }
  int order() const override { return 70; }

  void recolour(RandomStream& random, const Pixels& pixels) const override {
    if (random.uniform() >= probability_) return;
    constexpr double kLeast = 0.1, kMost = 2;
    const Weights weights = weights_of(random.uniform(kLeast, kMost));
    const int64_t row = pixels.width * pixels.channels, count = pixels.height * row;
    thread_local std::vector<float> one, other;
    one.assign(pixels.values, pixels.values + count);
    other.resize(one.size());
    blur(one, weights, 1, pixels.height, row, other);
    blur(other, weights, pixels.height, pixels.width, pixels.channels, one);
    for (int64_t i = 0; i < count; ++i)
      pixels.values[i] = static_cast<uint8_t>(std::nearbyint(one[static_cast<size_t>(i)]));
  }

 private:
  double probability_;
};

const config::Registered<GaussianBlur, GaussianBlurSpec> registered_gaussian_blur{augmentations(), "gaussian_blur",
                                                                                  "blurred images"};

}  // namespace
}  // namespace gputrain::data
