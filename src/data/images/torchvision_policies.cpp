// TrivialAugmentWide (Müller and Hutter, arXiv:2103.10158) and AutoAugment (Cubuk et al., arXiv:1805.09501) like
// torchvision's: magnitudes in steps, the nearest pixel, black outside.
#include <array>
#include <cmath>
#include <span>

#include "augment_policy.hpp"

namespace gputrain::data {
namespace {

/// Returns step `index` of `count` from `first` to `last` like torch.linspace: in fp32, from the nearer end, and
/// rounded once.
double linspace(double first, double last, int64_t index, int64_t count) {
  const double step = static_cast<double>(static_cast<float>(last - first) / static_cast<float>(count - 1));
  const double value = index < count / 2 ? first + step * static_cast<double>(index)
                                         : last - step * static_cast<double>(count - 1 - index);
  return static_cast<double>(static_cast<float>(value));
}

bool has_sign(Operation operation) { return operation < Operation::posterize && operation != Operation::identity; }
bool has_magnitude(Operation operation) {
  return has_sign(operation) || operation == Operation::posterize || operation == Operation::solarize;
}
bool is_enhancement(Operation operation) {
  return operation >= Operation::brightness && operation <= Operation::sharpness;
}

/// Greatest magnitudes of a set of operations, and the number of steps to them.
struct MagnitudeScale {
  double shear, rotation, enhancement;
  double fewest_bits;
  int64_t steps;

  double at(Operation operation, int64_t step, double most_pixels) const {
    switch (operation) {
      case Operation::shear_x:
      case Operation::shear_y:
        return linspace(0, shear, step, steps);
      case Operation::translate_x:
      case Operation::translate_y:
        return linspace(0, most_pixels, step, steps);
      case Operation::rotate:
        return linspace(0, rotation, step, steps);
      case Operation::posterize:
        return 8 - std::nearbyint(static_cast<double>(step) / (static_cast<double>(steps - 1) / (8 - fewest_bits)));
      case Operation::solarize:
        return linspace(255, 0, step, steps);
      default:
        return linspace(0, enhancement, step, steps);
    }
  }
};

/// Returns the operation with the argument for a magnitude.
PixelOperation with_magnitude(Operation operation, double magnitude) {
  if (is_enhancement(operation)) return {operation, 1 + magnitude};
  // torchvision states how far the image moves, the operation where its pixels come from.
  if (operation == Operation::translate_x || operation == Operation::translate_y)
    return {operation, -std::trunc(magnitude)};
  return {operation, magnitude};
}

class TrivialAugment final : public AugmentPolicy {
 public:
  std::vector<PixelOperation> draw(RandomStream& random, int64_t, int64_t) const override {
    constexpr MagnitudeScale kWide{.shear = 0.99, .rotation = 135, .enhancement = 0.99, .fewest_bits = 2, .steps = 31};
    constexpr double kMostPixels = 32;
    constexpr std::array kOperations{Operation::identity,      Operation::shear_x,     Operation::shear_y,
                                     Operation::translate_x,   Operation::translate_y, Operation::rotate,
                                     Operation::brightness,    Operation::saturation,  Operation::contrast,
                                     Operation::sharpness,     Operation::posterize,   Operation::solarize,
                                     Operation::auto_contrast, Operation::equalize};
    const Operation operation = kOperations[static_cast<size_t>(random.below(std::ssize(kOperations)))];
    const int64_t step = random.below(kWide.steps);
    const bool is_negative = random.below(2) == 1;
    if (!has_magnitude(operation)) return {{operation}};
    const double magnitude = kWide.at(operation, step, kMostPixels);
    return {with_magnitude(operation, has_sign(operation) && is_negative ? -magnitude : magnitude)};
  }
  bool shows_mean_outside() const override { return false; }
};

/// One operation of a pair, with its probability and magnitude.
struct Half {
  Operation operation;
  double probability;
  int64_t step = 0;
};
using Pair = std::array<Half, 2>;

class AutoAugment final : public AugmentPolicy {
 public:
  explicit AutoAugment(std::span<const Pair> pairs) : pairs_(pairs) {}

  std::vector<PixelOperation> draw(RandomStream& random, int64_t width, int64_t height) const override {
    constexpr MagnitudeScale kScale{.shear = 0.3, .rotation = 30, .enhancement = 0.9, .fewest_bits = 4, .steps = 10};
    constexpr double kMostPart = 150.0 / 331.0;  // fraction of the image by which it moves
    std::vector<PixelOperation> operations;
    for (const Half& half : pairs_[static_cast<size_t>(random.below(std::ssize(pairs_)))]) {
      const bool is_on = random.uniform() <= half.probability, is_negative = random.below(2) == 0;
      if (!is_on) continue;
      const bool is_across = half.operation == Operation::translate_x;
      const double most_pixels = kMostPart * static_cast<double>(is_across ? width : height);
      const double magnitude = has_magnitude(half.operation) ? kScale.at(half.operation, half.step, most_pixels) : 0;
      operations.push_back(
          with_magnitude(half.operation, has_sign(half.operation) && is_negative ? -magnitude : magnitude));
    }
    return operations;
  }
  bool shows_mean_outside() const override { return false; }

 private:
  std::span<const Pair> pairs_;
};

constexpr std::array<Pair, 25> kImagenet{{
    {{{Operation::posterize, 0.4, 8}, {Operation::rotate, 0.6, 9}}},
    {{{Operation::solarize, 0.6, 5}, {Operation::auto_contrast, 0.6}}},
    {{{Operation::equalize, 0.8}, {Operation::equalize, 0.6}}},
    {{{Operation::posterize, 0.6, 7}, {Operation::posterize, 0.6, 6}}},
    {{{Operation::equalize, 0.4}, {Operation::solarize, 0.2, 4}}},
    {{{Operation::equalize, 0.4}, {Operation::rotate, 0.8, 8}}},
    {{{Operation::solarize, 0.6, 3}, {Operation::equalize, 0.6}}},
    {{{Operation::posterize, 0.8, 5}, {Operation::equalize, 1.0}}},
    {{{Operation::rotate, 0.2, 3}, {Operation::solarize, 0.6, 8}}},
    {{{Operation::equalize, 0.6}, {Operation::posterize, 0.4, 6}}},
    {{{Operation::rotate, 0.8, 8}, {Operation::saturation, 0.4, 0}}},
    {{{Operation::rotate, 0.4, 9}, {Operation::equalize, 0.6}}},
    {{{Operation::equalize, 0.0}, {Operation::equalize, 0.8}}},
    {{{Operation::invert, 0.6}, {Operation::equalize, 1.0}}},
    {{{Operation::saturation, 0.6, 4}, {Operation::contrast, 1.0, 8}}},
    {{{Operation::rotate, 0.8, 8}, {Operation::saturation, 1.0, 2}}},
    {{{Operation::saturation, 0.8, 8}, {Operation::solarize, 0.8, 7}}},
    {{{Operation::sharpness, 0.4, 7}, {Operation::invert, 0.6}}},
    {{{Operation::shear_x, 0.6, 5}, {Operation::equalize, 1.0}}},
    {{{Operation::saturation, 0.4, 0}, {Operation::equalize, 0.6}}},
    {{{Operation::equalize, 0.4}, {Operation::solarize, 0.2, 4}}},
    {{{Operation::solarize, 0.6, 5}, {Operation::auto_contrast, 0.6}}},
    {{{Operation::invert, 0.6}, {Operation::equalize, 1.0}}},
    {{{Operation::saturation, 0.6, 4}, {Operation::contrast, 1.0, 8}}},
    {{{Operation::equalize, 0.8}, {Operation::equalize, 0.6}}},
}};

constexpr std::array<Pair, 25> kCifar10{{
    {{{Operation::invert, 0.1}, {Operation::contrast, 0.2, 6}}},
    {{{Operation::rotate, 0.7, 2}, {Operation::translate_x, 0.3, 9}}},
    {{{Operation::sharpness, 0.8, 1}, {Operation::sharpness, 0.9, 3}}},
    {{{Operation::shear_y, 0.5, 8}, {Operation::translate_y, 0.7, 9}}},
    {{{Operation::auto_contrast, 0.5}, {Operation::equalize, 0.9}}},
    {{{Operation::shear_y, 0.2, 7}, {Operation::posterize, 0.3, 7}}},
    {{{Operation::saturation, 0.4, 3}, {Operation::brightness, 0.6, 7}}},
    {{{Operation::sharpness, 0.3, 9}, {Operation::brightness, 0.7, 9}}},
    {{{Operation::equalize, 0.6}, {Operation::equalize, 0.5}}},
    {{{Operation::contrast, 0.6, 7}, {Operation::sharpness, 0.6, 5}}},
    {{{Operation::saturation, 0.7, 7}, {Operation::translate_x, 0.5, 8}}},
    {{{Operation::equalize, 0.3}, {Operation::auto_contrast, 0.4}}},
    {{{Operation::translate_y, 0.4, 3}, {Operation::sharpness, 0.2, 6}}},
    {{{Operation::brightness, 0.9, 6}, {Operation::saturation, 0.2, 8}}},
    {{{Operation::solarize, 0.5, 2}, {Operation::invert, 0.0}}},
    {{{Operation::equalize, 0.2}, {Operation::auto_contrast, 0.6}}},
    {{{Operation::equalize, 0.2}, {Operation::equalize, 0.6}}},
    {{{Operation::saturation, 0.9, 9}, {Operation::equalize, 0.6}}},
    {{{Operation::auto_contrast, 0.8}, {Operation::solarize, 0.2, 8}}},
    {{{Operation::brightness, 0.1, 3}, {Operation::saturation, 0.7, 0}}},
    {{{Operation::solarize, 0.4, 5}, {Operation::auto_contrast, 0.9}}},
    {{{Operation::translate_y, 0.9, 9}, {Operation::translate_y, 0.7, 9}}},
    {{{Operation::auto_contrast, 0.9}, {Operation::solarize, 0.8, 3}}},
    {{{Operation::equalize, 0.8}, {Operation::invert, 0.1}}},
    {{{Operation::translate_y, 0.7, 9}, {Operation::auto_contrast, 0.9}}},
}};

constexpr std::array<Pair, 25> kSvhn{{
    {{{Operation::shear_x, 0.9, 4}, {Operation::invert, 0.2}}},
    {{{Operation::shear_y, 0.9, 8}, {Operation::invert, 0.7}}},
    {{{Operation::equalize, 0.6}, {Operation::solarize, 0.6, 6}}},
    {{{Operation::invert, 0.9}, {Operation::equalize, 0.6}}},
    {{{Operation::equalize, 0.6}, {Operation::rotate, 0.9, 3}}},
    {{{Operation::shear_x, 0.9, 4}, {Operation::auto_contrast, 0.8}}},
    {{{Operation::shear_y, 0.9, 8}, {Operation::invert, 0.4}}},
    {{{Operation::shear_y, 0.9, 5}, {Operation::solarize, 0.2, 6}}},
    {{{Operation::invert, 0.9}, {Operation::auto_contrast, 0.8}}},
    {{{Operation::equalize, 0.6}, {Operation::rotate, 0.9, 3}}},
    {{{Operation::shear_x, 0.9, 4}, {Operation::solarize, 0.3, 3}}},
    {{{Operation::shear_y, 0.8, 8}, {Operation::invert, 0.7}}},
    {{{Operation::equalize, 0.9}, {Operation::translate_y, 0.6, 6}}},
    {{{Operation::invert, 0.9}, {Operation::equalize, 0.6}}},
    {{{Operation::contrast, 0.3, 3}, {Operation::rotate, 0.8, 4}}},
    {{{Operation::invert, 0.8}, {Operation::translate_y, 0.0, 2}}},
    {{{Operation::shear_y, 0.7, 6}, {Operation::solarize, 0.4, 8}}},
    {{{Operation::invert, 0.6}, {Operation::rotate, 0.8, 4}}},
    {{{Operation::shear_y, 0.3, 7}, {Operation::translate_x, 0.9, 3}}},
    {{{Operation::shear_x, 0.1, 6}, {Operation::invert, 0.6}}},
    {{{Operation::solarize, 0.7, 2}, {Operation::translate_y, 0.6, 7}}},
    {{{Operation::shear_y, 0.8, 4}, {Operation::invert, 0.8}}},
    {{{Operation::shear_x, 0.7, 9}, {Operation::translate_y, 0.8, 3}}},
    {{{Operation::shear_y, 0.8, 5}, {Operation::auto_contrast, 0.7}}},
    {{{Operation::shear_x, 0.7, 2}, {Operation::invert, 0.1}}},
}};

}  // namespace

std::unique_ptr<const AugmentPolicy> torchvision_policy(const std::string& word) {
  if (word == "trivial") return std::make_unique<TrivialAugment>();
  if (word == "imagenet") return std::make_unique<AutoAugment>(kImagenet);
  if (word == "cifar10") return std::make_unique<AutoAugment>(kCifar10);
  if (word == "svhn") return std::make_unique<AutoAugment>(kSvhn);
  return nullptr;
}

}  // namespace gputrain::data
