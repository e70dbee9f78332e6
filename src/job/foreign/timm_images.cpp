// Images in jobs of timm: as its weights ask for, unless the job says otherwise.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/published.hpp"
#include "timm.hpp"

namespace gputrain::app::foreign {

std::string in_list(const Moving& job, const std::string& key) {
  const config::Node* value = job.given(key);
  if (value == nullptr) return "";
  config::Node bare = *value;
  bare.key.clear();
  return bare.kind == config::Node::Kind::list ? config::to_flow(bare) : "[" + bare.text + "]";
}

namespace {

namespace fs = std::filesystem;

const std::string kAugment = "data.image.augment.";

/// How timm reads images for weights: its pretrained_cfg.
struct Reading {
  std::string model;  // beginning of its name in timm
  double crop = 0.875;
  int64_t size = 224;
  std::string mean = "", std = "";  // empty: ImageNet's
  std::string interpolation = "bicubic";
};

/// Returns what timm 1.0 has for a model's usual weights, which it goes by without any weights, too.
Reading usual_reading(const std::string& model) {
  const std::string half = "[0.5, 0.5, 0.5]";
  const std::array<Reading, 8> known{{{"resnet", 0.95},
                                      {"vit_", 0.9, 224, half, half},
                                      {"deit_", 0.9},
                                      {"convnext_tiny", 0.95},
                                      {"convnext_small", 0.95},
                                      {"tf_efficientnetv2_s", 1, 300, half, half},
                                      {"tf_efficientnetv2_", 1, 384, half, half},
                                      {""}}};
  return *std::ranges::find_if(known, [&](const Reading& one) { return model.starts_with(one.model); });
}

/// Returns that of the config.json beside the weights; nothing: they are not here.
std::optional<Reading> reading_of_weights(const std::string& weights) {
  const fs::path config = fs::path(hub::pretrained_path_or_name(weights)) / "config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(config, ignored)) return std::nullopt;
  const models::PublishedImages told = models::timm_images_in(checkpoint::read_json_object(config));
  if (!told.size || !told.normalization || !told.crop_pct || !told.interpolation) {
    throw Error(ExitCode::data, {.what = "not what timm says of its weights: input_size, mean, std, crop_pct and "
                                         "interpolation",
                                 .where = config.string() + ": pretrained_cfg"});
  }
  const auto list = [](const std::vector<double>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); };
  return Reading{.model = "",
                 .crop = *told.crop_pct,
                 .size = told.size->width,
                 .mean = list(told.normalization->mean),
                 .std = list(told.normalization->std),
                 .interpolation = *told.interpolation};
}

Reading reading_for(Moving& job) {
  const std::string name = job.has("model") ? job.text("model") : "resnet50";
  const bool names_weights = job.is_on("pretrained") && name.find('.') != std::string::npos;
  if (!names_weights) return usual_reading(name);
  if (auto reading = reading_of_weights("timm/" + name)) return std::move(*reading);
  job.tell("pretrained_cfg of timm/" + name, "",
           "the weights are not here, so data.image is that of timm's usual " + name.substr(0, name.find('.')) +
               "; a run warns where their config.json says otherwise");
  return usual_reading(name);
}

/// Returns the word of a filter that is known here; nothing: it has been told.
std::optional<std::string> filter_given(Moving& job, const std::string& key, bool may_be_drawn) {
  const std::string word = job.text(key);
  if (word == "bilinear" || word == "bicubic" || (may_be_drawn && word == "random")) return word;
  if (!word.empty()) job.tell(key, "images are resized bilinearly or bicubically");
  return std::nullopt;
}

void set_filters(Moving& job, const Reading& reading) {
  const auto given = filter_given(job, "interpolation", false);
  const std::string evaluating = given.value_or(reading.interpolation);
  job.set("data.image.eval.interpolation", evaluating, given ? "" : "as timm's weights");
  const auto training = filter_given(job, "train_interpolation", true);
  const bool follows = job.is_on("no_aug");
  job.set("data.image.interpolation", follows ? evaluating : training.value_or("random"),
          follows || training ? "" : kTimm);
}

void set_colours(Moving& job) {
  const std::string policy = job.text("aa");
  const bool is_rand = policy.starts_with("rand") && policy.find("-t") == std::string::npos;
  const bool is_augmix = policy.starts_with("augmix") && policy.find("-b") == std::string::npos;
  if (is_rand || is_augmix)
    job.set_text(kAugment + "auto_augment", policy);
  else if (!policy.empty())
    job.tell("aa", "no such policy here: `gputrain describe data.image.augment.auto_augment`");
  const bool acts = policy.empty() || job.is_on("force_color_jitter") || policy.find("3a") != std::string::npos;
  if (acts && (!job.has("color_jitter") || job.is_on("color_jitter"))) {
    job.set(kAugment + "color_jitter", job.has("color_jitter") ? in_list(job, "color_jitter") : "0.4",
            job.has("color_jitter") ? "" : kTimm);
    if (job.has("color_jitter_prob")) job.set(kAugment + "color_jitter_probability", job.text("color_jitter_prob"));
  } else if (!acts) {
    for (const char* key : {"color_jitter", "color_jitter_prob"})
      if (job.is_on(key)) job.tell(key, "timm leaves it out beside aa, unless told --force-color-jitter");
  }
  if (job.is_on("grayscale_prob")) job.set(kAugment + "grayscale", job.text("grayscale_prob"));
  if (job.is_on("gaussian_blur_prob")) job.set(kAugment + "gaussian_blur", job.text("gaussian_blur_prob"));
}

void set_changes(Moving& job) {
  const auto given = [&](const char* key, const char* fallback) { return job.has(key) ? job.text(key) : fallback; };
  const auto note = [&](const char* key) { return job.has(key) ? "" : kTimm; };
  job.set(kAugment + "random_resized_crop", job.has("scale") ? in_list(job, "scale") : "[0.08, 1.0]", note("scale"));
  if (job.has("ratio")) job.set(kAugment + "random_resized_crop_ratio", in_list(job, "ratio"));
  job.set(kAugment + "hflip", given("hflip", "0.5"), note("hflip"));
  if (job.is_on("vflip")) job.set(kAugment + "vflip", job.text("vflip"));
  set_colours(job);
  if (!job.is_on("reprob")) return;
  job.set(kAugment + "random_erasing.probability", job.text("reprob"));
  job.set(kAugment + "random_erasing.mode", given("remode", "pixel"), note("remode"));
  if (job.has("recount")) job.set(kAugment + "random_erasing.count", job.text("recount"));
}

void set_repeats(Moving& job) {
  const double repeats = job.number("aug_repeats", 0);
  if (repeats == 0) return;
  if (repeats == std::floor(repeats))
    job.set(kAugment + "repeats", fmt::format("{:g}", repeats), "copies of an image share a global batch");
  else
    job.tell("aug_repeats", "an image is repeated a whole number of times");
}

}  // namespace

void finish_timm_images(Moving& job) {
  const Reading reading = reading_for(job);
  const config::Node* extent = job.given("input_size");
  const bool is_set = job.sets("data.image.size");  // by an option of the model
  std::string size = is_set ? job.value_of("data.image.size") : std::to_string(reading.size);
  if (job.has("img_size")) size = job.text("img_size");
  if (extent != nullptr && extent->parts.size() == 3) size = extent->parts.back().text;
  job.set("data.image.size", size);
  for (const auto& [key, usual] : {std::pair("mean", reading.mean), std::pair("std", reading.std)}) {
    const std::string value = job.has(key) ? in_list(job, key) : usual;
    if (!value.empty()) job.set(std::string("data.image.") + key, value, job.has(key) ? "" : "as timm's weights");
  }
  const double pixels = std::atof(size.c_str());  // 0: no number, which validation refuses
  const double crop = job.number("crop_pct", reading.crop);
  if (crop > 0 && crop <= 1)
    job.set("data.image.eval.resize", fmt::format("{}", static_cast<int>(std::floor(pixels / crop))),
            fmt::format("crop_pct {:g}", crop));
  set_filters(job, reading);
  set_repeats(job);
  if (!job.is_on("no_aug")) set_changes(job);
}

}  // namespace gputrain::app::foreign
