#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/png.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/predict/predict.hpp"
#include "image_options.hpp"
#include "json_line.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ImageToLabel {
  size_t index = 0;               // index of its file
  data::ImageDecoder::Size size;  // size of the file's image
  at::Tensor pixels;              // uint8 [1, height, width, channels], scaled as in evaluation
};

ImageToLabel read_image(size_t index, const std::string& name, const data::ImageOptions& options, int64_t channels) {
  std::vector<std::byte> bytes;
  datasets::read_image_file(name, bytes);
  data::ImageDecoder decoder;
  const data::ImageDecoder::Size size = decoder.open(bytes, name);
  const data::Fit fit =
      data::ImageTransform(options, data::Split::val, size.width, size.height).uncropped(size.width, size.height);
  if (fit.width > data::kMostPixels / fit.height)
    throw Error(ExitCode::data, {.what = "becomes an image of " + std::to_string(fit.width) + " x " +
                                         std::to_string(fit.height) + " pixels, which are too many",
                                 .where = name});
  at::Tensor pixels = at::empty({1, fit.height, fit.width, channels}, at::kByte);
  data::fit_image(decoder.decode(channels), fit, pixels.mutable_data_ptr<uint8_t>());
  return {index, size, std::move(pixels)};
}

/// Returns FOLDER/STEM.png for each file; nothing without a folder.
std::vector<fs::path> mask_files(const std::vector<std::string>& images, const fs::path& folder) {
  if (folder.empty()) return {};
  std::vector<fs::path> masks;
  std::set<fs::path> known, inputs;
  for (const std::string& image : images) inputs.insert(fs::weakly_canonical(image));
  for (const std::string& image : images) {
    masks.push_back(folder / fs::path(image).filename().replace_extension(".png"));
    if (!known.insert(masks.back()).second)
      throw Error(ExitCode::usage, {.what = "two images would have the mask " + masks.back().string(), .where = image});
  }
  for (const fs::path& mask : masks)
    if (inputs.contains(fs::weakly_canonical(mask)))
      throw Error(ExitCode::usage, {.what = "a mask would replace the image " + mask.string(),
                                    .where = folder.string(),
                                    .hint = "--masks another folder"});
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ExitCode::environment,
                {.what = "cannot make the folder: " + error.message(), .where = folder.string()});
  return masks;
}

class MaskWriter {
 public:
  MaskWriter(trained::Model& model, std::vector<std::string> images, const ImagesToSee& wanted)
      : model_(model),
        images_(std::move(images)),
        json_(wanted.json),
        files_(mask_files(images_, wanted.masks)),
        preprocess_(*model.datasets.train, app::input_format(model.job.spec(), *model.datasets.train, model.context)),
        forward_(model) {
    if (model.class_names.size() > 256)
      throw Error(ExitCode::usage, {.what = "a mask has at most 256 classes, and the model has " +
                                            std::to_string(model.class_names.size())});
  }

  /// Writes the masks of images of one size.
  std::string write(const std::vector<ImageToLabel>& images) {
    std::vector<at::Tensor> pixels;
    for (const ImageToLabel& image : images) pixels.push_back(image.pixels);
    Batch batch{.fields = {{kImage, at::cat(pixels).to(model_.context.device)}}};
    batch.samples = batch.samples_on_all_ranks = std::ssize(images);
    const at::Tensor logits =
        trained::with_names(forward_(preprocess_(batch)), model_.class_names).permute({0, 3, 1, 2}).to(at::kFloat);
    std::string lines;
    for (size_t i = 0; i < images.size(); ++i) {
      const auto& [width, height] = images[i].size;
      at::Tensor one = logits.narrow(0, static_cast<int64_t>(i), 1);
      if (one.size(2) != height || one.size(3) != width)
        one = at::upsample_bilinear2d(one, {height, width}, /*align_corners=*/false);
      lines += write_one(images[i].index, at::argmax(one[0], 0).to(at::kCPU, at::kByte).contiguous());
    }
    return lines;
  }

 private:
  std::string write_one(size_t index, const at::Tensor& mask) const {
    const uint8_t* const numbers = mask.const_data_ptr<uint8_t>();
    std::string line = images_[index];
    Json all{{"file", images_[index]}};
    if (!files_.empty()) {
      const std::string file = files_[index].string();
      write_file_atomically(file, data::mask_png_of(numbers, mask.size(1), mask.size(0)), ExitCode::environment);
      line += "\t" + file;
      all["mask"] = file;
    }
    all["shares"] = Json::object();
    std::vector<std::pair<int64_t, size_t>> counts(model_.class_names.size());
    for (size_t label = 0; label < counts.size(); ++label) counts[label].second = label;
    for (int64_t i = 0; i < mask.numel(); ++i) --counts[numbers[i]].first;
    std::ranges::sort(counts);
    for (const auto& [negative, label] : counts) {
      if (negative == 0) break;
      const double share = static_cast<double>(-negative) / static_cast<double>(mask.numel());
      line += fmt::format("\t{} {:.4f}", model_.class_names[label], share);
      all["shares"][model_.class_names[label]] = share;
    }
    return json_ ? json_line(all) : line + "\n";
  }

  trained::Model& model_;
  std::vector<std::string> images_;  // files
  bool json_;
  std::vector<fs::path> files_;  // masks; empty: none are written
  data::Preprocess preprocess_;
  trained::Forward forward_;
};

}  // namespace

ImagePredictions write_masks(trained::Model& model, const ImagesToSee& wanted) {
  const auto [files, others] = datasets::image_files(wanted.files);
  const data::ImageOptions options = image_options_of(model);
  MaskWriter writer(model, files, wanted);
  const int64_t channels = model.datasets.train->layout().input().sizes.back();
  ImagePredictions predictions{.lines = {}, .unreadable = others};
  std::vector<ImageToLabel> images;
  const auto flush = [&] {
    if (!images.empty()) predictions.lines += writer.write(images);
    images.clear();
  };
  for (size_t i = 0; i < files.size(); ++i) {
    ImageToLabel image;
    try {
      image = read_image(i, files[i], options, channels);
    } catch (const Error& bad) {
      if (bad.code() != ExitCode::data) throw;
      predictions.unreadable.emplace_back(bad.what());
      continue;
    }
    const bool is_other = !images.empty() && images.front().pixels.sizes() != image.pixels.sizes();
    if (is_other || std::ssize(images) == wanted.batch_size) flush();
    images.push_back(std::move(image));
  }
  flush();
  return predictions;
}

}  // namespace gputrain::app
