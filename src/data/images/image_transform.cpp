#include "gputrain/data/image_transform.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

constexpr uint64_t kColourStream = 0x636f6c6f7572;

int64_t centered(int64_t full, int64_t length) {
  // Like torchvision: rounds half to even when it crops, down when it pads.
  if (full < length) return -((length - full) / 2);
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(full - length) / 2));
}

}  // namespace

ImageTransform::ImageTransform(const ImageOptions& options, Split role, int64_t width, int64_t height)
    : augmentations_(options.augment.active()),
      width_(options.size.value.value_or(width)),
      height_(options.size.value.value_or(height)) {
  train_resize_ = std::min(width_, height_);
  double zoom = 1;
  for (const auto& [name, augmentation] : augmentations_) zoom = std::max(zoom, augmentation->eval_zoom());
  const auto usual = static_cast<int64_t>(std::lround(static_cast<double>(train_resize_) * zoom));
  eval_resize_ = options.eval.resize.value.value_or(usual);
  if (role != Split::train && options.eval.crop.value) width_ = height_ = *options.eval.crop.value;
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

Fit ImageTransform::uncropped(int64_t width, int64_t height) const {
  Fit fit = whole(eval_resize_, width, height);
  fit.width = fit.full_width;
  fit.height = fit.full_height;
  return fit;
}

Fit ImageTransform::fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const {
  Fit fit = whole(context.augment ? train_resize_ : eval_resize_, width, height);
  fit.x = centered(fit.full_width, width_);
  fit.y = centered(fit.full_height, height_);
  if (!context.augment) return fit;
  RandomStream random(mix(context.seed, static_cast<uint64_t>(context.epoch)), static_cast<uint64_t>(index));
  for (const auto& [name, augmentation] : augmentations_) augmentation->place(random, {width, height}, fit);
  return fit;
}

void ImageTransform::recolour(int64_t index, const ReadContext& context, const Pixels& pixels) const {
  if (!context.augment) return;
  const uint64_t seed = mix(mix(context.seed, static_cast<uint64_t>(context.epoch)), kColourStream);
  RandomStream random(seed, static_cast<uint64_t>(index));
  for (const auto& [name, augmentation] : augmentations_) augmentation->recolour(random, pixels);
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
