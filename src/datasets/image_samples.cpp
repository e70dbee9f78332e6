#include "gputrain/datasets/image_samples.hpp"
#include "gputrain/data/signature.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/data/read_stages.hpp"
#include "gputrain/data/subset.hpp"
#include "gputrain/data/upright.hpp"
#include "gputrain/datasets/roles.hpp"
#include "summary.hpp"

namespace gputrain::datasets {
namespace {

std::string_view class_of(std::string_view name) { return name.substr(0, name.find('/')); }

std::string classes_text(const std::vector<std::string>& classes) {
  constexpr size_t kMost = 10;
  std::string text = "the training data has " + counted(std::ssize(classes), "class") + ": ";
  for (size_t i = 0; i < std::min(kMost, classes.size()); ++i) text += (i == 0 ? "" : ", ") + classes[i];
  return text + (classes.size() > kMost ? ", ..." : "");
}

/// Returns the ending in lower case, with the dot.
std::string ending_of(std::string_view name) { return lower_case(name.substr(std::min(name.rfind('.'), name.size()))); }

/// Returns whether all images of the class lie in further folders, as below a folder of a role.
bool has_only_folders(const std::string& name, const std::vector<std::string>& images) {
  return std::ranges::none_of(images, [&](std::string_view image) {
    return image.starts_with(name + "/") && image.find('/', name.size() + 1) == std::string_view::npos;
  });
}

/// Refuses classes that are named like roles, for then `prefix` was probably forgotten. Only warns if other classes
/// have other names: a train may be a vehicle.
void check_roles(const std::vector<std::string>& classes, const std::vector<std::string>& images,
                 const std::string& where) {
  std::vector<std::string> named;
  std::set<data::Split> roles;
  bool has_folders = false;
  for (const std::string& name : classes) {
    const auto role = role_of_name(name);
    if (!role) continue;
    named.push_back(name);
    roles.insert(*role);
    has_folders = has_folders || has_only_folders(name, images);
  }
  if (named.empty()) return;
  const RoleNames found(named);
  const std::string& first = found.train.empty() ? named.front() : found.train;
  const std::string hint = "prefix: " + first + " uses the classes inside it";
  if (named.size() == classes.size())
    throw Error(ExitCode::data,
                {.what = "the folder " + first + " would become a class of images", .where = where, .hint = hint});
  if (roles.size() < 2 && !has_folders) return;
  std::string all;
  for (const std::string& name : named) all += (all.empty() ? "" : ", ") + name;
  log::warning(printable(where + ": classes of images are named like parts of the data: " + all) + "; " +
               printable(hint));
}

data::ImageDecoder& image_decoder() {
  thread_local data::ImageDecoder decoder;
  return decoder;
}

std::string text_of(const data::ImageDecoder::Size& size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

/// Returns the stored size that a few sampled images share. Skips images that cannot be read: data.max_bad_fraction may
/// allow them.
data::ImageDecoder::Size common_size(const ImageStore& store) {
  constexpr int64_t kImages = 16;
  const int64_t count = std::min(kImages, store.size());
  std::optional<data::ImageDecoder::Size> known;
  std::exception_ptr unreadable;
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * store.size() / count;
    data::ImageDecoder::Size size;
    try {
      store.read(index, bytes);
      size = image_decoder().open(bytes, store.full_name(index));
    } catch (const Error&) {
      if (!unreadable) unreadable = std::current_exception();
      continue;
    }
    const data::ImageDecoder::Size common = known.value_or(size);
    known = common;
    if (size == common) continue;
    throw Error(ExitCode::usage, {.what = "the images have different sizes (" + text_of(common) + ", " + text_of(size) +
                                          ") and the job sets no common size",
                                  .where = "data.image.size",
                                  .hint = "size: 224"});
  }
  if (!known) std::rethrow_exception(unreadable);
  return *known;
}

}  // namespace

void read_image_file(const std::string& path, std::vector<std::byte>& bytes) {
  const data::ReadOnlyFile file(path);
  if (file.size() > kMostImageBytes)
    throw Error(ExitCode::data,
                {.what = "an image file of " + std::to_string(file.size()) + " bytes", .where = file.path()});
  bytes.resize(static_cast<size_t>(file.size()));
  file.read(0, bytes);
}

data::Content content_of_file(const std::string& path) {
  const auto file = std::make_shared<const data::ReadOnlyFile>(path);
  return {file->size(), [file](int64_t offset, std::span<std::byte> to) { file->read(offset, to); }};
}

bool is_image_name(std::string_view name) {
  const std::string ending = ending_of(name);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".jpe" || ending == ".jfif" || ending == ".png";
}

bool is_image_file(const std::string& path) {
  if (is_image_name(path)) return true;
  const std::string_view kind = data::kind_of(data::ReadOnlyFile(path)).name;
  return kind == "a PNG image" || kind == "a JPEG image";
}

bool is_unread_image_name(std::string_view name) {
  constexpr std::array kEndings{".apng", ".avif", ".bmp", ".gif", ".heic", ".heif", ".jp2",  ".jxl",
                                ".pbm",  ".pgm",  ".pnm", ".ppm", ".tga",  ".tif",  ".tiff", ".webp"};
  const std::string ending = ending_of(name);
  if (is_image_name(name)) return false;
  const bool is_again = ending.size() > 1 && ending.find_first_not_of("0123456789", 1) == ending.npos &&
                        is_image_name(name.substr(0, name.size() - ending.size()));  // "1.jpg.1", like wget's
  const bool is_longer = ending.starts_with(".jp") || ending.starts_with(".pjp") || ending.starts_with(".png");
  return is_again || is_longer || std::ranges::find(kEndings, ending) != kEndings.end();
}

void warn_of_unread_images(const std::string& where, const LeftOut& images) {
  images.warn(where, "image", "named as neither JPEG nor PNG");
}

void keep_images(std::vector<std::string>& names, const std::string& where) {
  LeftOut others;
  for (const std::string& name : names) {
    const size_t slash = name.rfind('/');
    const bool has_no_ending = name.find('.', slash + 1) == name.npos;
    // A file such as LICENSE may lie beside the folders of classes.
    const bool may_be_image = has_no_ending && (slash != name.npos || is_image_file(where + "/" + name));
    if (may_be_image || is_unread_image_name(name)) others.add(name);
  }
  warn_of_unread_images(where, others);
  std::erase_if(names, [](const std::string& name) { return !is_image_name(name); });
}

std::vector<std::string> known_classes(const data::DatasetRequest& request) {
  return request.train ? request.train->class_names : std::vector<std::string>();
}

data::ImageOptions image_options(const data::DatasetRequest& request) {
  return request.image ? *request.image : data::ImageOptions{};
}

std::string_view ImageStore::name(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(names_).substr(begin, ends_[i] - begin);
}

uint64_t ImageStore::content_hash() const {
  const std::string_view labels(reinterpret_cast<const char*>(labels_.data()), labels_.size() * sizeof(labels_[0]));
  const uint64_t images = data::content_hash(size(), [this](int64_t index) { return content(index); });
  const uint64_t all = mix(images, mix(stable_hash(names_), stable_hash(labels)));
  if (has_rows())
    return mix(all, stable_hash({reinterpret_cast<const char*>(rows_.data()), rows_.size() * sizeof(rows_[0])}));
  if (masks() == nullptr) return all;
  const auto& class_of = masks()->class_of();
  const std::string_view table(reinterpret_cast<const char*>(class_of.data()), sizeof class_of);
  const uint64_t content = data::content_hash(size(), [this](int64_t index) { return masks()->content(index); });
  return mix(all, mix(content, stable_hash(table)));
}

void ImageStore::set_names(const std::vector<std::string>& names, const std::vector<std::string>& known,
                           const std::string& where) {
  if (names.empty())
    throw Error(ExitCode::data, {.what = "no images (.jpg, .jpeg, .png) in class folders",
                                 .where = where,
                                 .hint = "each class is a folder: dog/1.jpg, cat/2.jpg"});
  class_names_ = known;
  if (known.empty()) {
    for (const std::string& name : names) class_names_.emplace_back(class_of(name));
    std::sort(class_names_.begin(), class_names_.end());
    class_names_.erase(std::unique(class_names_.begin(), class_names_.end()), class_names_.end());
    check_roles(class_names_, names, where);
  }
  std::map<std::string_view, int32_t> numbers;
  for (const std::string& name : class_names_) numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  std::vector<int32_t> labels;
  for (const std::string& name : names) {
    const auto number = numbers.find(class_of(name));
    if (number == numbers.end())
      throw Error(ExitCode::data,
                  {.what = "the class '" + std::string(class_of(name)) + "' is not in the training data",
                   .where = where,
                   .hint = classes_text(class_names_)});
    labels.push_back(number->second);
  }
  keep(names, std::move(labels));
}

void ImageStore::set_labels(const std::vector<std::string>& names, std::vector<int32_t> labels,
                            const std::vector<std::string>& known, const std::string& where) {
  const int64_t highest = *std::max_element(labels.begin(), labels.end());
  class_names_ = known;
  if (known.empty()) {
    for (int64_t number = 0; number <= highest; ++number) class_names_.push_back(std::to_string(number));
  } else if (highest >= std::ssize(known)) {
    throw Error(ExitCode::data,
                {.what = "class " + std::to_string(highest) + " is not in the training data, which has " +
                         counted(std::ssize(known), "class"),
                 .where = where});
  }
  keep(names, std::move(labels));
}

void ImageStore::set_rows(const std::vector<std::string>& names, std::vector<float> rows,
                          std::vector<std::string> columns) {
  class_names_ = std::move(columns);
  rows_ = std::move(rows);
  GPUTRAIN_ASSERT(rows_.size() == names.size() * class_names_.size(), "a number for each column of each name");
  keep(names, {});
}

void ImageStore::keep(const std::vector<std::string>& names, std::vector<int32_t> labels) {
  labels_ = std::move(labels);
  for (const std::string& name : names) {
    names_ += name;
    ends_.push_back(names_.size());
  }
  names_.shrink_to_fit();
}

ImageSamples::ImageSamples(std::shared_ptr<const ImageStore> store, const data::ImageOptions& options, data::Split role)
    : store_(std::move(store)), options_(options) {
  if (options.size.is_auto()) common_size_ = common_size(*store_);
  const auto [width, height] = common_size_.value_or(data::ImageDecoder::Size());
  transform_ = std::make_unique<data::ImageTransform>(options, role, width, height);
  const int64_t channels = options.channels.value.value_or(3);
  const auto layout_of = store_->masks() != nullptr ? data::SampleLayout::masked_images
                         : store_->has_rows()       ? data::SampleLayout::images_with_numbers
                                                    : data::SampleLayout::images;
  layout_ = layout_of(transform_->height(), transform_->width(), channels, std::ssize(store_->class_names()));
  normalization_ = statistics_for(options, channels, imagenet_statistics(channels));
}

void ImageSamples::read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const {
  thread_local std::vector<std::byte> bytes;
  store_->read(index, bytes);
  data::ReadStages::end("read");
  const data::ImageDecoder::Size size = image_decoder().open(bytes, store_->full_name(index));
  if (common_size_ && size != *common_size_) warn_of_size(index, size);
  const data::Fit fit = transform_->fit(index, context, size.width, size.height);
  const int64_t reduction = data::ImageTransform::reduction(fit, context);
  const int64_t channels = layout_.input().sizes.back();
  const data::ImageView image = image_decoder().decode(channels, reduction);
  data::ReadStages::end("decode");
  auto* const pixels = row.values<uint8_t>(0);
  data::fit_image(image, fit, pixels, image.width == size.width ? 1 : reduction);
  const bool has_mask = store_->masks() != nullptr;
  if (has_mask) {
    read_mask(index, {size, data::is_turned_upright(bytes)}, fit, row.values<int64_t>(1));
  } else if (store_->has_rows()) {
    std::ranges::copy(store_->row(index), row.values<float>(1));
  } else {
    *row.values<int64_t>(1) = store_->label(index);
  }
  data::ReadStages::end("resize");
  transform_->recolour(index, context,
                       {.values = pixels,
                        .width = fit.width,
                        .height = fit.height,
                        .channels = channels,
                        .statistics = &normalization_,
                        .mask = has_mask ? row.values<int64_t>(1) : nullptr});
  data::ReadStages::end("augment");
}

std::optional<int64_t> ImageSamples::class_of(int64_t index) const {
  const bool has_class = !store_->has_rows() && store_->masks() == nullptr && store_->label(index) >= 0;
  return has_class ? std::optional(store_->label(index)) : std::nullopt;
}

void ImageSamples::read_mask(int64_t index, const UprightImage& image, const data::Fit& fit, int64_t* to) const {
  thread_local std::vector<std::byte> bytes;
  thread_local data::ImageDecoder decoder;
  const MaskStore& masks = *store_->masks();
  const std::string name = masks.full_name(index);
  masks.read(index, bytes);
  const data::ImageDecoder::Size size = decoder.open(bytes, name);
  if (size != image.size)
    throw Error(ExitCode::data, {.what = "a mask of " + text_of(size) + " for an image of " + text_of(image.size) +
                                         (image.is_turned ? ", which its EXIF orientation turns" : ""),
                                 .where = name,
                                 .hint = image.is_turned ? "masks are of upright images: turn the mask" : ""});
  if (image.is_turned && !has_warned_of_turn_.exchange(true))
    log::own_warning(printable(store_->full_name(index)) +
                     " is turned by its EXIF orientation: its mask must be of the upright image, and so must those of "
                     "all images that are turned");
  const data::ImageView mask = decoder.decode_numbers();
  const std::span numbers(mask.pixels, static_cast<size_t>(mask.width * mask.height));
  const auto wrong =
      std::ranges::find(numbers, MaskStore::kNoClass, [&](uint8_t number) { return masks.class_of()[number]; });
  if (wrong != numbers.end())
    throw Error(ExitCode::data, {.what = "the mask has the number " + std::to_string(*wrong) + ", which is none of " +
                                         counted(std::ssize(store_->class_names()), "class"),
                                 .where = name,
                                 .hint = "see num_classes, values and ignore_index of the format segmentation"});
  data::fit_mask(mask, fit, masks.class_of(), kIgnoreIndex, to);
}

void ImageSamples::warn_of_size(int64_t index, const data::ImageDecoder::Size& size) const {
  if (has_warned_.exchange(true)) return;
  log::own_warning(printable(store_->full_name(index)) + " is " + text_of(size) +
                   ", but `data.image.size: auto` found " + text_of(*common_size_) +
                   ": it is resized and cropped, and so is every other image of another size");
}

std::shared_ptr<const data::Dataset> ImageSamples::part(double begin, double end, data::Split role) const {
  return std::make_shared<data::Subset>(std::make_shared<ImageSamples>(store_, options_, role), begin, end);
}

std::string ImageSamples::describe() const {
  const std::string unread = store_->unread();
  return describe_images(size(), layout_) + (store_->masks() != nullptr ? " of pixels" : "") +
         (unread.empty() ? "" : "; not read: " + unread);
}

}  // namespace gputrain::datasets
