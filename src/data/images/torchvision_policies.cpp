// TrivialAugmentWide (Müller and Hutter, arXiv:2103.10158) like torchvision's: magnitudes in steps, the nearest pixel,
// black outside.
#include <array>
#include <cmath>

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

constexpr int64_t kSteps = 31;  // of magnitudes

double magnitude_of(Operation operation, int64_t step) {
  switch (operation) {
    case Operation::translate_x:
    case Operation::translate_y:
      return linspace(0, 32, step, kSteps);
    case Operation::rotate:
      return linspace(0, 135, step, kSteps);
    case Operation::posterize:
      return 8 - std::nearbyint(static_cast<double>(step) / (static_cast<double>(kSteps - 1) / 6));
    case Operation::solarize:
      return linspace(255, 0, step, kSteps);
    default:
      return linspace(0, 0.99, step, kSteps);
  }
}

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
    constexpr std::array kOperations{Operation::identity,      Operation::shear_x,     Operation::shear_y,
                                     Operation::translate_x,   Operation::translate_y, Operation::rotate,
                                     Operation::brightness,    Operation::saturation,  Operation::contrast,
                                     Operation::sharpness,     Operation::posterize,   Operation::solarize,
                                     Operation::auto_contrast, Operation::equalize};
    const Operation operation = kOperations[static_cast<size_t>(random.below(std::ssize(kOperations)))];
    const int64_t step = random.below(kSteps);
    const bool is_negative = random.below(2) == 1;
    if (!has_magnitude(operation)) return {{operation}};
    const double magnitude = magnitude_of(operation, step);
    return {with_magnitude(operation, has_sign(operation) && is_negative ? -magnitude : magnitude)};
  }
  bool shows_mean_outside() const override { return false; }
};

}  // namespace

std::unique_ptr<const AugmentPolicy> torchvision_policy(const std::string& word) {
  return word == "trivial" ? std::make_unique<TrivialAugment>() : nullptr;
}

}  // namespace gputrain::data
