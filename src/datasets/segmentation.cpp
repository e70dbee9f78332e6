// A folder of images and one of their masks, which have the same names.
#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/image_samples.hpp"

namespace gputrain::datasets {
namespace {

constexpr int64_t kMostNumbers = 256;

struct SegmentationSpec {
  std::string images = "images", masks = "masks";
  std::string image_suffix, mask_suffix;
  std::optional<std::string> list;
  std::optional<int64_t> num_classes;
  std::vector<std::string> class_names;
  std::vector<int64_t> values;
  std::optional<int64_t> ignore_index = 255;

  /// Returns 0 if the spec does not say.
  int64_t classes() const {
    if (num_classes) return *num_classes;
    return std::max(std::ssize(class_names), std::ssize(values));
  }

  static void check(const SegmentationSpec& spec, config::SpecIssues& issues) {
    const int64_t classes = spec.classes();
    if (classes == 0)
      issues.add("num_classes", "how many classes there are is not known without reading all masks",
                 "num_classes: 21, or class_names: [background, ...]");
    if (classes > kMostNumbers)
      issues.add("class_names",
                 "a mask of 8 bits tells at most 256 classes apart, and these are " + std::to_string(classes));
    if (!spec.class_names.empty() && std::ssize(spec.class_names) != classes)
      issues.add("class_names",
                 "has " + counted(std::ssize(spec.class_names), "name") + " for " + counted(classes, "class"));
    if (!spec.values.empty() && std::ssize(spec.values) != classes)
      issues.add("values", "has " + counted(std::ssize(spec.values), "number") + " for " + counted(classes, "class"));
    if (std::set(spec.values.begin(), spec.values.end()).size() != spec.values.size())
      issues.add("values", "has a number twice");
    const int64_t ignored = spec.ignore_index.value_or(-1);
    const bool is_class = spec.values.empty() ? ignored >= 0 && ignored < classes
                                              : std::ranges::find(spec.values, ignored) != spec.values.end();
    if (is_class)
      issues.add("ignore_index", std::to_string(ignored) + " is a class", "ignore_index: null, if no pixel is ignored");
  }

  static void describe(config::Description<SegmentationSpec>& d) {
    d.summary(
        "images with a class for each pixel: a folder of JPEG and PNG files, and one of masks with the same names, PNG "
        "files whose numbers (8-bit grey, or places in a palette) are the classes");
    d.key("images", &SegmentationSpec::images, "the folder of images inside `path`").path();
    d.key("masks", &SegmentationSpec::masks, "the folder of masks inside `path`").path();
    d.key("image_suffix", &SegmentationSpec::image_suffix,
          "what names of images have at their end, before .png, and those of masks have not: _leftImg8bit");
    d.key("mask_suffix", &SegmentationSpec::mask_suffix,
          "what names of masks have at their end, before .png, and those of images have not: _mask");
    d.key("list", &SegmentationSpec::list,
          "a text file inside `path` with the names of the images to use, without endings, one a line, as PASCAL VOC "
          "has them; null: all that have a mask")
        .path();
    d.key("num_classes", &SegmentationSpec::num_classes, "classes; null: as many as class_names or values")
        .range(1, kMostNumbers);
    d.key("class_names", &SegmentationSpec::class_names, "names of the classes, in order of their numbers");
    d.key("values", &SegmentationSpec::values,
          "the number in masks of each class; empty: 0, 1, 2 and so on. [0, 255] for masks of black and white")
        .range(0, kMostNumbers - 1);
    d.key("ignore_index", &SegmentationSpec::ignore_index,
          "the number in masks of pixels that are neither learned nor counted; null: all are")
        .range(0, kMostNumbers - 1);
    d.check([](const SegmentationSpec& spec, config::SpecIssues& issues) { check(spec, issues); });
  }
};

std::array<int64_t, 256> classes_of_numbers(const SegmentationSpec& spec) {
  std::array<int64_t, 256> class_of{};
  class_of.fill(MaskStore::kNoClass);
  for (int64_t number = 0; number < spec.classes(); ++number)
    class_of[static_cast<size_t>(spec.values.empty() ? number : spec.values[static_cast<size_t>(number)])] = number;
  if (spec.ignore_index) class_of[static_cast<size_t>(*spec.ignore_index)] = kIgnoreIndex;
  return class_of;
}

std::string stem_of(const std::string& name) { return std::filesystem::path(name).replace_extension().string(); }

/// Returns files of images below `root` whose names have the suffix before their endings, by their paths without both.
std::map<std::string, std::string> images_by_stem(const std::string& root, const std::string& suffix, const char* what,
                                                  const data::DatasetRequest& request) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(root, ignored)) data::throw_missing(root, what);
  std::map<std::string, std::string> images;
  LeftOut others, without_suffix;
  for (const std::string& name : list_folder(root, {}, request.own_folders).files) {
    if (is_unread_image_name(name)) others.add(name);
    if (!is_image_name(name)) continue;
    std::string stem = stem_of(name);
    if (!stem.ends_with(suffix)) {
      without_suffix.add(name);
      continue;
    }
    stem.resize(stem.size() - suffix.size());
    const auto [known, is_new] = images.emplace(stem, name);
    if (!is_new)
      throw Error(ExitCode::data, {.what = known->second + " and " + name + " have one name", .where = root});
  }
  warn_of_unread_images(root, others);
  without_suffix.warn(root, "image", "whose name does not end in " + suffix);
  return images;
}

/// Throws an error for images of which none has a mask; names the first of both.
[[noreturn]] void throw_unmatched(const std::string& root, const std::map<std::string, std::string>& images,
                                  const std::map<std::string, std::string>& masks) {
  std::string what = "no image has a mask of the same name", hint = "images/1.jpg has the mask masks/1.png";
  if (!images.empty() && !masks.empty()) {
    const auto& [image, image_file] = *images.begin();
    const auto& [mask, mask_file] = *masks.begin();
    what += ": the first image is " + image_file + ", the first mask " + mask_file;
    if (mask.starts_with(image)) hint = "mask_suffix: " + mask.substr(image.size());
  }
  throw Error(ExitCode::data, {.what = what, .where = root, .hint = hint});
}

std::set<std::string> names_in(const std::string& path) {
  const data::ReadOnlyFile file(path);
  constexpr int64_t kMostBytes = 1 << 30;
  if (file.size() > kMostBytes) throw Error(ExitCode::data, {.what = "too long for a list of names", .where = path});
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  file.read(0, bytes);
  std::istringstream words(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::set<std::string> names;
  for (std::string line; std::getline(words, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.insert(line);
  }
  return names;
}

class MaskFiles final : public MaskStore {
 public:
  MaskFiles(std::vector<std::string> files, const std::array<int64_t, 256>& class_of)
      : MaskStore(class_of), files_(std::move(files)) {}

  std::string full_name(int64_t index) const override { return files_[static_cast<size_t>(index)]; }
  void read(int64_t index, std::vector<std::byte>& bytes) const override { read_image_file(full_name(index), bytes); }
  data::Content content(int64_t index) const override { return content_of_file(full_name(index)); }

 private:
  std::vector<std::string> files_;
};

class MaskedImages final : public ImageStore {
 public:
  MaskedImages(const SegmentationSpec& spec, const data::DatasetRequest& request)
      : root_(request.path + "/" + spec.images) {
    const std::string mask_root = request.path + "/" + spec.masks;
    auto images = images_by_stem(root_, spec.image_suffix, "a folder of images", request);
    auto masks = images_by_stem(mask_root, spec.mask_suffix, "a folder of masks", request);
    if (spec.list) keep_listed(request.path + "/" + *spec.list, images, masks);
    std::vector<std::string> names, mask_files;
    LeftOut without_mask, without_image;
    if (std::ranges::none_of(images, [&](const auto& image) { return masks.contains(image.first); }))
      throw_unmatched(root_, images, masks);
    for (const auto& [stem, name] : images) {
      const auto mask = masks.extract(stem);
      if (mask.empty()) {
        without_mask.add(name);
        continue;
      }
      names.push_back(name);
      mask_files.push_back(mask_root + "/" + mask.mapped());
    }
    for (const auto& [stem, name] : masks) without_image.add(name);
    without_mask.warn(root_, "image", "without a mask");
    without_image.warn(mask_root, "mask", "without an image");
    masks_.emplace(std::move(mask_files), classes_of_numbers(spec));
    std::vector<std::string> classes = spec.class_names;
    for (int64_t number = std::ssize(classes); number < spec.classes(); ++number)
      classes.push_back(std::to_string(number));
    if (request.train != nullptr && request.train->class_names != classes)
      throw Error(ExitCode::usage, {.what = "its classes are not those of the training data", .where = mask_root});
    set_labels(names, std::vector<int32_t>(names.size(), 0), classes, root_);
  }

  std::string full_name(int64_t index) const override { return root_ + "/" + std::string(name(index)); }
  void read(int64_t index, std::vector<std::byte>& bytes) const override { read_image_file(full_name(index), bytes); }
  const MaskStore* masks() const noexcept override { return &*masks_; }

 protected:
  data::Content content(int64_t index) const override { return content_of_file(full_name(index)); }

 private:
  using Files = std::map<std::string, std::string>;  // paths by stem

  static void keep_listed(const std::string& list, Files& images, Files& masks) {
    const std::set<std::string> names = names_in(list);
    for (const std::string& name : names)
      if (!images.contains(name) || !masks.contains(name))
        throw Error(ExitCode::data, {.what = name + " has no image or no mask", .where = list});
    for (Files* files : {&images, &masks})
      std::erase_if(*files, [&](const auto& file) { return !names.contains(file.first); });
  }

  std::string root_;
  std::optional<MaskFiles> masks_;
};

/// Checks some masks. Those of black and white are often 0 and 255, and 255 is ignored unless the job says otherwise.
/// Throws Error(data) if none can be read.
void look_at_masks(const MaskStore& masks, int64_t count) {
  constexpr int64_t kMasksRead = 16;
  std::exception_ptr unreadable;
  int64_t read = 0;
  std::array<int64_t, 256> pixels{};
  data::ImageDecoder decoder;
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < std::min(kMasksRead, count); ++i) {
    try {
      const int64_t index = i * count / std::min(kMasksRead, count);
      masks.read(index, bytes);
      decoder.open(bytes, masks.full_name(index));
      const data::ImageView mask = decoder.decode_numbers();
      for (int64_t at = 0; at < mask.width * mask.height; ++at) ++pixels[mask.pixels[at]];
      ++read;
    } catch (const Error& error) {  // a few bad ones are reported in training
      if (error.code() != ExitCode::data) throw;
      if (!unreadable) unreadable = std::current_exception();
    }
  }
  if (read == 0 && unreadable) std::rethrow_exception(unreadable);
  int64_t classes = 0, known = 0, ignored = 0;
  for (size_t number = 0; number < pixels.size(); ++number) {
    const int64_t of = masks.class_of()[number];
    if (pixels[number] == 0 || of == MaskStore::kNoClass) continue;
    (of == kIgnoreIndex ? ignored : known) += pixels[number];
    if (of != kIgnoreIndex) ++classes;
  }
  if (classes > 1 || ignored == 0) return;
  log::warning("data.train: " + counted(std::min(kMasksRead, count), "mask") + " looked at have " +
               (classes == 0 ? "no class" : "one class") + ", and " +
               std::to_string(100 * ignored / (known + ignored)) +
               " % of their pixels are ignored (ignore_index): masks that are black and white need values: [0, 255], "
               "ignore_index: null");
}

/// Refuses augmentations that masks cannot follow.
void refuse_augmentations(const data::AugmentOptions& augment) {
  if (augment.mix.is_on())
    throw Error(ExitCode::usage, {.what = "images with masks are not mixed: a pixel would be of two classes",
                                  .where = "data.image.augment.mix",
                                  .hint = "leave it out"});
  for (const auto& [name, augmentation] : augment.active()) {
    if (augmentation->keeps_masks()) continue;
    throw Error(ExitCode::usage,
                {.what = name + " moves the pixels of an image, but not those of its mask",
                 .where = "data.image.augment." + name,
                 .hint = "random_resized_crop, random_crop_padding, hflip and vflip move both; color_jitter and "
                         "grayscale change the image alone"});
  }
}

class SegmentationImages final : public ImageSamples {
 public:
  SegmentationImages(const SegmentationSpec& spec, const data::DatasetRequest& request)
      : ImageSamples(store_of(spec, request), image_options(request), request.role) {
    request.tell_files({request.path, spec.images, spec.masks, spec.list.value_or("")});
    if (request.role == data::Split::train) look_at_masks(*store().masks(), size());
  }

 private:
  static std::shared_ptr<const ImageStore> store_of(const SegmentationSpec& spec, const data::DatasetRequest& request) {
    if (request.model.target != Target::pixels)
      throw Error(ExitCode::usage, {.what = "the data has a class for each pixel, but the model does not give one",
                                    .where = "model.type",
                                    .hint = "model: {type: unet}"});
    refuse_augmentations(image_options(request).augment);
    return std::make_shared<MaskedImages>(spec, request);
  }
};

const config::Registered<SegmentationImages, SegmentationSpec> registered_segmentation{
    data::catalog(), "segmentation", "a folder of images and one of masks, PNG files of class numbers"};

}  // namespace
}  // namespace gputrain::datasets
