// From an image of any size to the model's input; augmentations draw from (seed, epoch, sample).
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/data/augmentation.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::data {

class ImageTransform {
 public:
  /// `width` and `height` are the input size unless the options set another.
  ImageTransform(const ImageOptions& options, Split role, int64_t width, int64_t height);

  int64_t width() const noexcept { return width_; }
  int64_t height() const noexcept { return height_; }

  /// All of an image, in the scale of evaluation.
  Fit uncropped(int64_t width, int64_t height) const;
  /// How to fit sample `index`, an image of the given size.
  Fit fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const;
  /// Applies the augmentations of colours to fitted pixels of width() and height().
  void recolour(int64_t index, const ReadContext& context, const Pixels& pixels) const;

  /// By what factor JPEG decoding may reduce the image; 1 in evaluation, whose results must not depend on it.
  static int64_t reduction(const Fit& fit, const ReadContext& context);

 private:
  Fit whole(int64_t shorter_side, int64_t width, int64_t height) const;

  std::vector<AugmentOptions::Active> augmentations_;
  int64_t width_, height_;
  int64_t train_resize_, eval_resize_;  // length of the shorter side
};

}  // namespace gputrain::data
