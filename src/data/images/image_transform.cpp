#include "gputrain/data/image_transform.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

// The field's habits: crops of 224 are trained with zoom, and tested after resizing to 256.
constexpr double kZoomOfRandomCrops = 256.0 / 224.0;
constexpr double kGreatestStretch = 4.0 / 3.0;

int64_t centered(int64_t full, int64_t length) {
  // As torchvision: to even when cropping, downwards when padding.
  if (full < length) return -((length - full) / 2);
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(full - length) / 2));
}

}  // namespace

ImageTransform::ImageTransform(const ImageOptions& options, Role role, int64_t width, int64_t height)
    : augment_(options.augment),
      width_(options.size.value.value_or(width)),
      height_(options.size.value.value_or(height)) {
  train_resize_ = std::min(width_, height_);
  const bool zooms = options.augment.random_resized_crop.has_value();
  const auto usual = static_cast<int64_t>(std::lround(static_cast<double>(train_resize_) * kZoomOfRandomCrops));
  eval_resize_ = options.eval.resize.value.value_or(zooms ? usual : train_resize_);
  if (role != Role::train && options.eval.crop.value) width_ = height_ = *options.eval.crop.value;
}

Fit ImageTransform::whole(int64_t shorter_side, int64_t width, int64_t height) const {
  Fit fit{
      .right = width, .bottom = height, .full_width = width, .full_height = height, .width = width_, .height = height_};
  const int64_t shorter = std::min(width, height);
  if (shorter == shorter_side) return fit;
  const auto scaled = [&](int64_t length) {
    return length == shorter ? shorter_side : std::max<int64_t>(1, shorter_side * length / shorter);
  };
  fit.full_width = scaled(width);
  fit.full_height = scaled(height);
  return fit;
}

Fit ImageTransform::random_resized_crop(RandomStream& random, int64_t width, int64_t height) const {
  constexpr int kAttempts = 10;
  const double w = static_cast<double>(width), h = static_cast<double>(height);
  Fit fit{.full_width = width_, .full_height = height_, .width = width_, .height = height_};
  const auto take = [&fit](int64_t left, int64_t top, int64_t across, int64_t down) {
    fit.left = left;
    fit.top = top;
    fit.right = left + across;
    fit.bottom = top + down;
    return fit;
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area =
        w * h * random.uniform(augment_.random_resized_crop->front(), augment_.random_resized_crop->back());
    const double aspect = std::exp(random.uniform(-std::log(kGreatestStretch), std::log(kGreatestStretch)));
    const int64_t across = std::lround(std::sqrt(area * aspect)), down = std::lround(std::sqrt(area / aspect));
    if (across < 1 || across > width || down < 1 || down > height) continue;
    const int64_t top = random.below(height - down + 1);
    return take(random.below(width - across + 1), top, across, down);
  }
  // An image too long and narrow: the largest crop in its middle that is not.
  const int64_t across = std::min(width, std::max<int64_t>(1, std::lround(h * kGreatestStretch)));
  const int64_t down = std::min(height, std::max<int64_t>(1, std::lround(w * kGreatestStretch)));
  return take((width - across) / 2, (height - down) / 2, across, down);
}

Fit ImageTransform::fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const {
  RandomStream random(mix(context.seed, static_cast<uint64_t>(context.epoch)), static_cast<uint64_t>(index));
  Fit fit;
  if (context.augment && augment_.random_resized_crop) {
    fit = random_resized_crop(random, width, height);
  } else {
    fit = whole(context.augment ? train_resize_ : eval_resize_, width, height);
    fit.x = centered(fit.full_width, width_);
    fit.y = centered(fit.full_height, height_);
  }
  if (!context.augment) return fit;
  if (const int64_t padding = augment_.random_crop_padding; padding > 0) {
    fit.x = random.below(std::max<int64_t>(1, fit.full_width + 2 * padding - width_ + 1)) - padding;
    fit.y = random.below(std::max<int64_t>(1, fit.full_height + 2 * padding - height_ + 1)) - padding;
  }
  fit.flip = augment_.hflip > 0 && random.uniform() < augment_.hflip;
  return fit;
}

int64_t ImageTransform::reduction(const Fit& fit, const ReadContext& context) {
  if (!context.augment) return 1;
  int64_t reduction = 8;
  while (reduction > 1 &&
         ((fit.right - fit.left) < fit.full_width * reduction || (fit.bottom - fit.top) < fit.full_height * reduction))
    reduction /= 2;
  return reduction;
}

}  // namespace gputrain::data
