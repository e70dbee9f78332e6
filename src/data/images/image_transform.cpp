#include "gputrain/data/image_transform.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

constexpr uint64_t kColourStream = 0x636f6c6f7572;

int64_t centered(int64_t full, int64_t length) {
  // Rounding like torchvision's: half to even when it crops, down when it pads.
  if (full < length) return -((length - full) / 2);
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(full - length) / 2));
}

/// Returns the filter of a word; empty: it has none, or is drawn.
std::optional<Filter> filter_of(const config::Auto<std::string>& word) {
  if (word.is_auto() || *word.value == "random") return std::nullopt;
  return *word.value == "bicubic" ? Filter::bicubic : Filter::bilinear;
}

}  // namespace

ImageTransform::ImageTransform(const ImageOptions& options, Split role, int64_t width, int64_t height)
    : augmentations_(options.augment.active()),
      size_(extent_of(options.size, {.height = height, .width = width})),
      eval_shorter_side_(options.eval.resize.value),
      filter_(options.interpolation.is_auto() ? Filter::bilinear : filter_of(options.interpolation)),
      operation_filter_(filter_of(options.interpolation)),
      eval_filter_(filter_of(options.eval.interpolation).value_or(operation_filter_.value_or(Filter::bilinear))) {
  double zoom = 1;
  for (const auto& [name, augmentation] : augmentations_) zoom = std::max(zoom, augmentation->eval_zoom());
  const auto zoomed = [zoom](int64_t length) {
    return static_cast<int64_t>(std::lround(static_cast<double>(length) * zoom));
  };
  train_cover_ = size_;
  eval_cover_ = {.height = zoomed(size_.height), .width = zoomed(size_.width)};
  if (role != Split::train) size_ = extent_of(options.eval.crop, size_);
}

Fit ImageTransform::whole(const ReadContext& context, int64_t width, int64_t height) const {
  ImageExtent cover = context.augment ? train_cover_ : eval_cover_;
  if (!context.augment && eval_shorter_side_) cover = {.height = *eval_shorter_side_, .width = *eval_shorter_side_};
  Fit fit{.right = width,
          .bottom = height,
          .full_width = cover.width,
          .full_height = cover.height,
          .width = size_.width,
          .height = size_.height,
          .filter = eval_filter_};
  // One side becomes that of the cover; the other one is rounded down, as in torchvision.
  if (width * cover.height <= height * cover.width) {
    fit.full_height = cover.width * height / width;
  } else {
    fit.full_width = cover.height * width / height;
  }
  return fit;
}

Fit ImageTransform::uncropped(int64_t width, int64_t height) const {
  Fit fit = whole({.augment = false}, width, height);
  fit.width = fit.full_width;
  fit.height = fit.full_height;
  return fit;
}

Fit ImageTransform::fit(int64_t index, const ReadContext& context, int64_t width, int64_t height) const {
  Fit fit = whole(context, width, height);
  fit.x = centered(fit.full_width, size_.width);
  fit.y = centered(fit.full_height, size_.height);
  if (!context.augment) return fit;
  RandomStream random(mix(context.seed, static_cast<uint64_t>(context.epoch)), static_cast<uint64_t>(index));
  for (const auto& [name, augmentation] : augmentations_) augmentation->place(random, {width, height}, fit);
  fit.filter = filter_ ? *filter_ : random.below(2) == 0 ? Filter::bilinear : Filter::bicubic;
  return fit;
}

void ImageTransform::recolour(int64_t index, const ReadContext& context, const Pixels& pixels) const {
  if (!context.augment) return;
  const uint64_t seed = mix(mix(context.seed, static_cast<uint64_t>(context.epoch)), kColourStream);
  RandomStream random(seed, static_cast<uint64_t>(index));
  Pixels changed = pixels;
  changed.filter = operation_filter_;
  for (const auto& [name, augmentation] : augmentations_) augmentation->recolour(random, changed);
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
