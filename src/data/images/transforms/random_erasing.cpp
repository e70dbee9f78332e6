// Random erasing (Zhong et al., arXiv:1708.04896) like timm's, which acts on normalised values. These are bytes, so the
// mean is rounded, and noise is clipped to the range of bytes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "../../draw_normal.hpp"
#include "../pixel_ops.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {
namespace {

struct Erasing {
  double probability = 0;
  std::string mode = "const";
  int64_t count = 1;
  std::vector<double> area{0.02, 1.0 / 3};
  std::vector<double> aspect{0.3, 1 / 0.3};

  static void describe(config::Description<Erasing>& d) {
    d.summary("rectangles of training images are erased, after all other changes");
    d.key("probability", &Erasing::probability, "probability that an image loses something")
        .range(0, 1)
        .aliases({"reprob"});
    d.key("mode", &Erasing::mode,
          "what appears there: const (the mean colour), rand (a random colour) or pixel (a random colour for each "
          "pixel)")
        .choices({"const", "rand", "pixel"})
        .aliases({"remode"});
    d.key("count", &Erasing::count, "the most rectangles; they share the area")
        .range(1, 100)
        .unit("rectangles")
        .aliases({"recount"});
    d.key("area", &Erasing::area, "smallest and largest fraction of the image that is erased").elements(2).range(0, 1);
    d.key("aspect", &Erasing::aspect, "smallest and largest height of a rectangle, as a multiple of its width")
        .elements(2)
        .above(0);
    d.check([](const Erasing& erasing, config::SpecIssues& issues) {
      if (erasing.area[0] > erasing.area[1])
        issues.add("area", "give the smallest and the largest fraction, in this order", "area: [0.02, 0.333]");
      if (erasing.aspect[0] > erasing.aspect[1])
        issues.add("aspect", "give the smallest and the largest ratio, in this order", "aspect: [0.3, 3.3]");
    });
  }
};

struct RandomErasingSpec {
  Erasing erasing;

  static void describe(config::Description<RandomErasingSpec>& d) {
    d.key("random_erasing", &RandomErasingSpec::erasing, "rectangles that are erased after all other changes");
  }
};

/// Values of the normal distribution at the middles of equal parts of its probability: a random one of them is a draw
/// of the distribution, in steps finer than a byte.
class NormalTable {
 public:
  static constexpr int kBits = 12;

  NormalTable() {
    double z = -4;
    for (size_t i = 0; i < values_.size(); ++i) {
      const double wanted = (static_cast<double>(i) + 0.5) / static_cast<double>(values_.size());
      for (int round = 0; round < 20; ++round) {  // Newton's method, from the value before
        const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
        const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
        z -= std::clamp((below - wanted) / density, -0.25, 0.25);
      }
      values_[i] = static_cast<float>(z);
    }
  }

  float operator[](uint32_t index) const { return values_[index]; }

 private:
  std::array<float, size_t{1} << kBits> values_{};
};

/// Conversion of normalised values to bytes: value * scale + mean.
struct ByteRange {
  float scale, mean;

  uint8_t byte(float value) const {
    return static_cast<uint8_t>(std::clamp(value * scale + mean, 0.0f, 255.0f) + 0.5f);
  }
};

std::array<ByteRange, 3> byte_ranges(const Pixels& pixels) {
  std::array<ByteRange, 3> ranges;
  ranges.fill({255, 0});
  for (size_t c = 0; pixels.statistics != nullptr && c < pixels.statistics->mean.size(); ++c)
    ranges[c] = {static_cast<float>(255 * pixels.statistics->std[c]),
                 static_cast<float>(255 * pixels.statistics->mean[c])};
  return ranges;
}

class RandomErasing final : public Augmentation {
 public:
  explicit RandomErasing(const RandomErasingSpec& spec) : erasing_(spec.erasing) {}

  bool is_on() const override { return erasing_.probability > 0; }
  int order() const override { return 90; }

  void recolour(RandomStream& random, const Pixels& pixels) const override {
    if (random.uniform() >= erasing_.probability) return;
    const int64_t count = 1 + random.below(erasing_.count);
    for (int64_t i = 0; i < count; ++i) erase_one(random, pixels, static_cast<double>(count));
  }

 private:
  void erase_one(RandomStream& random, const Pixels& pixels, double count) const {
    const double all = static_cast<double>(pixels.width * pixels.height);
    constexpr int kAttempts = 10;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const double area = random.uniform(erasing_.area[0], erasing_.area[1]) * all / count;
      const double aspect = std::exp(random.uniform(std::log(erasing_.aspect[0]), std::log(erasing_.aspect[1])));
      const auto height = static_cast<int64_t>(std::nearbyint(std::sqrt(area * aspect)));
      const auto width = static_cast<int64_t>(std::nearbyint(std::sqrt(area / aspect)));
      if (width >= pixels.width || height >= pixels.height) continue;
      const int64_t top = random.below(pixels.height - height + 1), left = random.below(pixels.width - width + 1);
      Pixels rectangle = pixels;
      rectangle.values += (top * pixels.width + left) * pixels.channels;
      rectangle.width = width;
      rectangle.height = height;
      return fill(random, rectangle, pixels.width * pixels.channels);
    }
  }

  /// Fills `rectangle`, whose rows are `stride` bytes apart.
  void fill(RandomStream& random, const Pixels& rectangle, int64_t stride) const {
    const std::array<ByteRange, 3> ranges = byte_ranges(rectangle);
    const auto channels = static_cast<size_t>(rectangle.channels);
    Colour colour{};
    for (size_t c = 0; c < channels; ++c)
      colour[c] = ranges[c].byte(erasing_.mode == "rand" ? static_cast<float>(draw_normal(random)) : 0);
    for (int64_t y = 0; y < rectangle.height; ++y) {
      uint8_t* const row = rectangle.values + y * stride;
      if (erasing_.mode == "pixel") {
        fill_with_noise(random, ranges, channels, row, rectangle.width);
      } else {
        for (int64_t x = 0; x < rectangle.width; ++x)
          std::memcpy(row + x * rectangle.channels, colour.data(), channels);
      }
    }
  }

  static void fill_with_noise(RandomStream& random, const std::array<ByteRange, 3>& ranges, size_t channels,
                              uint8_t* row, int64_t width) {
    static const NormalTable table;
    for (int64_t x = 0; x < width; ++x)
      for (size_t c = 0; c < channels; ++c) *row++ = ranges[c].byte(table[random.bits() >> (32 - NormalTable::kBits)]);
  }

  Erasing erasing_;
};

const config::Registered<RandomErasing, RandomErasingSpec> registered_random_erasing{augmentations(), "random_erasing",
                                                                                     "rectangles that are erased"};

}  // namespace
}  // namespace gputrain::data
