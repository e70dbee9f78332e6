#include "augment_policy.hpp"

namespace gputrain::data {

AugmentPolicy::~AugmentPolicy() = default;

void AugmentPolicy::change(RandomStream& random, const Pixels& pixels, const Colour& outside) const {
  for (PixelOperation operation : draw(random, pixels.width, pixels.height)) {
    if (pixels.filter && operation.filter != Filter::nearest) operation.filter = *pixels.filter;
    apply(operation, pixels, outside);
  }
}

void apply(const PixelOperation& operation, const Pixels& pixels, const Colour& outside) {
  const double argument = operation.argument;
  const auto move = [&](const Affine& affine) { transform(pixels, affine, operation.filter, outside); };
  switch (operation.operation) {
    case Operation::identity:
      return;
    case Operation::shear_x:
      return move({.xy = argument});
    case Operation::shear_y:
      return move({.yx = argument});
    case Operation::translate_x:
      return move({.x0 = argument});
    case Operation::translate_y:
      return move({.y0 = argument});
    case Operation::rotate:
      return argument == 0 ? void() : move(Affine::rotation(argument, pixels.width, pixels.height));
    case Operation::brightness:
      return brightness(pixels, argument);
    case Operation::saturation:
      return saturation(pixels, argument);
    case Operation::contrast:
      return contrast(pixels, argument);
    case Operation::sharpness:
      return sharpness(pixels, argument);
    case Operation::posterize:
      return posterize(pixels, static_cast<int64_t>(argument));
    case Operation::solarize:
      return solarize(pixels, argument);
    case Operation::solarize_add:
      return solarize_add(pixels, static_cast<int64_t>(argument));
    case Operation::auto_contrast:
      return auto_contrast(pixels);
    case Operation::equalize:
      return equalize(pixels);
    case Operation::invert:
      return invert(pixels);
  }
}

std::unique_ptr<const AugmentPolicy> policy_of(const std::string& word, PolicyMistake& mistake) {
  if (auto policy = torchvision_policy(word)) return policy;
  if (auto policy = timm_policy(word, mistake)) return policy;
  if (mistake.what.empty())
    mistake = {"'" + word + "' is not a known policy",
               "rand-m9-mstd0.5-inc1 (RandAugment), augmix-m3-w3 (AugMix) or trivial (TrivialAugment)"};
  return nullptr;
}

}  // namespace gputrain::data
