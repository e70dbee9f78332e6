// From an image of any size to the model's input: crops, padding, flips, drawn from (seed, epoch, sample).
#pragma once

#include <cstdint>

#include "gputrain/core/random.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::data {

class ImageTransform {
 public:
  /// `width` and `height` are the input's unless the options say otherwise. Throws Error(usage) for options that
  /// contradict each other.
  ImageTransform(const ImageOptions& options, Role role, int64_t width, int64_t height);

  int64_t width() const noexcept { return width_; }
  int64_t height() const noexcept { return height_; }

  /// How sample `index`, an image of the given size, is fitted.
  Fit fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const;

  /// By how much a JPEG may be reduced in decoding: 1 where results must not depend on it (evaluation).
  static int64_t reduction(const Fit& fit, const ReadContext& context);

 private:
  Fit random_resized_crop(RandomStream& random, int64_t width, int64_t height) const;
  Fit whole(int64_t shorter_side, int64_t width, int64_t height) const;

  AugmentOptions augment_;
  int64_t width_, height_;
  int64_t train_resize_, eval_resize_;  // of the shorter side
};

}  // namespace gputrain::data
