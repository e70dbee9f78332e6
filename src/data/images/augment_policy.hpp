// Policies: which operations change an image, and how strongly, drawn anew for each image. A job names one by its name
// in timm or torchvision.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/core/random.hpp"
#include "pixel_ops.hpp"

namespace gputrain::data {

enum class Operation {
  identity,
  shear_x,      // pixels to the side for each pixel down
  shear_y,      // pixels down for each pixel to the side
  translate_x,  // pixels
  translate_y,
  rotate,      // degrees
  brightness,  // factor, like the next three; 1 changes nothing
  saturation,
  contrast,
  sharpness,
  posterize,     // bits that are kept
  solarize,      // the lowest value that is inverted
  solarize_add,  // addition to dark values
  auto_contrast,
  equalize,
  invert,
};

/// An operation with its argument, in the unit that Operation states.
struct PixelOperation {
  Operation operation = Operation::identity;
  double argument = 0;
  Filter filter = Filter::nearest;  // filter of shears, translations and rotations
};

void apply(const PixelOperation& operation, const Pixels& pixels, const Colour& outside);

/// Policy that draws operations for an image. Thread-safe.
class AugmentPolicy {
 public:
  virtual ~AugmentPolicy();

  /// Draws the operations for an image of this size, in their order.
  virtual std::vector<PixelOperation> draw(RandomStream& random, int64_t width, int64_t height) const = 0;
  /// Changes an image by drawn operations. `outside` appears where they move it away.
  virtual void change(RandomStream& random, const Pixels& pixels, const Colour& outside) const;
  /// Returns whether the mean colour appears where an operation moves the image away; otherwise black does.
  virtual bool shows_mean_outside() const = 0;
};

/// Mistake in the word of a policy: the fact, and what to try.
struct PolicyMistake {
  std::string what, hint;
};

/// Returns the policy of this word. Null: `mistake` says why.
std::unique_ptr<const AugmentPolicy> policy_of(const std::string& word, PolicyMistake& mistake);

/// Returns timm's: rand-m9-mstd0.5-inc1, augmix-m3-w3. Null: not such a word, or one with the mistake
/// that is then set.
std::unique_ptr<const AugmentPolicy> timm_policy(const std::string& word, PolicyMistake& mistake);

/// Returns torchvision's, with its defaults: trivial (TrivialAugmentWide). Null: not such a word.
std::unique_ptr<const AugmentPolicy> torchvision_policy(const std::string& word);

}  // namespace gputrain::data
