// Jobs for images: with classes, with masks.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/models/published.hpp"
#include "jobs.hpp"
#include "recipes.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kSmall = 64, kUsual = 224, kMostKept = 512, kUsualBatch = 128, kFewBatches = 8;

const std::vector<double> kUsualMean{0.485, 0.456, 0.406}, kUsualStd{0.229, 0.224, 0.225};  // ImageNet's

int64_t batch_for(int64_t samples) { return std::clamp<int64_t>(samples / kFewBatches, 1, kUsualBatch); }

bool is_small(const data::ImageExtent& size) {
  return std::min(size.height, size.width) > 0 && std::max(size.height, size.width) <= kSmall;
}

/// Images of one size are learned as they are, unless they are large; small ones by a small U-Net.
JobText mask_job(const FoundData& found, const data::ImageExtent& size, int64_t samples) {
  JobText job(recipe_named("segmentation").text);
  constexpr int64_t kMostMasks = 16, kMostLearned = 256;
  const int64_t longer = std::max(size.height, size.width);
  std::string image = job.line_of("data", "image");
  if (is_small(size)) {
    image = "{augment: {hflip: 0.5, color_jitter: 0.4}}";
    job.set("model", "{type: unet, config: {channels: [16, 32, 64]}}");
  } else if (longer > 0 && longer <= kMostLearned) {
    const std::string usual = "size: " + std::to_string(kMostLearned);
    image.replace(image.find(usual), usual.size(), fmt::format("size: [{}, {}]", size.height, size.width));
    job.set("model", "{type: unet, config: {channels: [32, 64, 128, 256]}}");
  }
  return job.remove("vars")
      .set("data", data_section(found, image))
      .set("train", fmt::format("{{max_epochs: {}, global_batch_size: {}}}", is_small(size) ? 30 : 100,
                                std::min(kMostMasks, batch_for(samples))));
}

/// Returns the keys of data.image that a published folder says: the size of its images, and how they are normalised.
std::string image_keys(const BaseModel& base) {
  const nlohmann::json config = parse_json_file(base.folder / "config.json");
  const auto size = models::image_size_in(config).value_or(models::ImageSize{kUsual, kUsual});
  std::string keys = size.height == size.width ? fmt::format("size: {}", size.height)
                                               : fmt::format("size: [{}, {}]", size.height, size.width);
  const auto told = models::timm_images_in(config).normalization;
  if (!told || (told->mean == kUsualMean && told->std == kUsualStd)) return keys;
  return keys + fmt::format(", mean: [{}], std: [{}]", fmt::join(told->mean, ", "), fmt::join(told->std, ", "));
}

/// A published model learns new classes at small rates.
JobText fine_tuning(const FoundData& found, const BaseModel& base, int64_t samples) {
  return JobText()
      .set("model", "{type: " + base.type + ", pretrained: " + in_quotes(base.name) + "}")
      .set("data",
           data_section(found, "{" + image_keys(base) + ", augment: {random_resized_crop: [0.3, 1.0], hflip: 0.5}}"))
      .set("train", fmt::format("{{max_epochs: 10, global_batch_size: {}, label_smoothing: 0.1}}", batch_for(samples)))
      .set("optimizer", "{type: adamw, lr: 1e-4, weight_decay: 0.05}")
      .set("lr_scheduler", "{type: cosine, warmup: 1ep}")
      .set("eval", "{interval: 1ep}");
}

}  // namespace

JobText image_job(const FoundData& found, const Begin& begin, const data::ImageExtent& size, int64_t samples) {
  if (!begin.quantize.empty())
    throw Error(ExitCode::usage, {.what = "models of images are not quantised", .where = "--quantize"});
  if (found.masks && begin.base)
    throw Error(ExitCode::usage,
                {.what = "a class for each pixel is learned from nothing", .where = "--model", .hint = "leave it out"});
  if (found.masks) return mask_job(found, size, samples);
  if (begin.base) return fine_tuning(found, *begin.base, samples);
  const int64_t shorter = std::min(size.height, size.width), longer = std::max(size.height, size.width);
  const bool keeps_shape = shorter < longer && longer <= kMostKept;
  const std::string used = keeps_shape ? fmt::format("[{}, {}]", size.height, size.width) : std::to_string(kUsual);
  const bool is_idx = found.train.find("format: idx") != std::string::npos;
  const std::string small_image =
      is_idx ? "{augment: {random_crop_padding: 2}}"
             : "{augment: {random_crop_padding: " + std::to_string(shorter / 8) + ", hflip: 0.5}}";
  return JobText()
      .set("model", is_small(size) ? "{type: resnet18, config: {stem: cifar}}" : "{type: resnet50}")
      .set("data",
           data_section(
               found,
               is_small(size)
                   ? small_image
                   : fmt::format("{{size: {}, augment: {{random_resized_crop: [0.25, 1.0], hflip: 0.5}}}}", used)))
      .set("train", fmt::format("{{max_epochs: 30, global_batch_size: {}, label_smoothing: 0.1}}", batch_for(samples)))
      .set("optimizer", "{type: sgd, lr: 0.1, lr_base_batch_size: 256, momentum: 0.9, weight_decay: 5e-4}")
      .set("lr_scheduler", "{type: cosine, warmup: 5%}")
      .set("eval", "{interval: 1ep}");
}

std::string weights_for(const FoundData& found, const data::ImageExtent& size, int64_t samples) {
  constexpr int64_t kMany = 50'000;
  return is_small(size) || samples >= kMany || found.masks ? "" : "timm/resnet50.a1_in1k";
}

}  // namespace gputrain::app
