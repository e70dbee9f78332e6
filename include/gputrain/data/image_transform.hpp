// Transform from an image of any size to the model's input; augmentations draw from (seed, epoch, sample).
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
  /// Takes `width` and `height` as the input size unless the options set another.
  ImageTransform(const ImageOptions& options, Split role, int64_t width, int64_t height);

  int64_t width() const noexcept { return size_.width; }
  int64_t height() const noexcept { return size_.height; }

  /// Returns the fit that shows all of an image, in the scale of evaluation.
  Fit uncropped(int64_t width, int64_t height) const;
  /// Returns the fit of sample `index`, an image of the given size.
  Fit fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const;
  /// Applies the augmentations of colours to fitted pixels of width() and height().
  void recolour(int64_t index, const ReadContext& context, const Pixels& pixels) const;

  /// Returns the factor by which JPEG decoding may reduce the image; 1 in evaluation, so that its results never change.
  static int64_t reduction(const Fit& fit, const ReadContext& context);

 private:
  /// Returns the fit that shows all of an image, so large that it covers what the context asks for.
  Fit whole(const ReadContext& context, int64_t width, int64_t height) const;

  std::vector<AugmentOptions::Active> augmentations_;
  ImageExtent size_;                      // size of the input
  ImageExtent train_cover_, eval_cover_;  // sizes that resized images cover
  std::optional<int64_t> eval_shorter_side_;
  std::optional<Filter> filter_;  // filter of training; empty: drawn for each image
  std::optional<Filter> operation_filter_;
  Filter eval_filter_;
};

}  // namespace gputrain::data
