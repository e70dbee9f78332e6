// From an image of any size to the model's input; augmentations draw from (seed, epoch, sample).
#pragma once

#include <cstdint>
#include <optional>
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

  int64_t width() const noexcept { return size_.width; }
  int64_t height() const noexcept { return size_.height; }

  /// All of an image, in the scale of evaluation.
  Fit uncropped(int64_t width, int64_t height) const;
  /// How to fit sample `index`, an image of the given size.
  Fit fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const;
  /// Applies the augmentations of colours to fitted pixels of width() and height().
  void recolour(int64_t index, const ReadContext& context, const Pixels& pixels) const;

  /// By what factor JPEG decoding may reduce the image; 1 in evaluation, whose results must not depend on it.
  static int64_t reduction(const Fit& fit, const ReadContext& context);

 private:
  /// All of an image, so large that it covers what the context asks for.
  Fit whole(const ReadContext& context, int64_t width, int64_t height) const;

  std::vector<AugmentOptions::Active> augmentations_;
  ImageExtent size_;                      // of the input
  ImageExtent train_cover_, eval_cover_;  // what resized images cover
  std::optional<int64_t> eval_shorter_side_;
};

}  // namespace gputrain::data
