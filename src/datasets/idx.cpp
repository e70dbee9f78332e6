// MNIST and similar data: IDX files of grey images and of labels, held in memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/data/subset.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "idx_file.hpp"
#include "summary.hpp"

namespace gputrain::datasets {
namespace {

struct IdxSpec {
  config::Auto<int64_t> num_classes;

  static void describe(config::Description<IdxSpec>& d) {
    d.summary("IDX files, plain or .gz, in a folder: train-* for training, t10k-* or test-* for validation and test");
    d.key("num_classes", &IdxSpec::num_classes,
          "number of classes, all labels are below it; auto: highest label of the training data + 1")
        .range(1, 256)
        .unit("classes");
  }
};

struct IdxImages {
  std::string path;
  IdxArray images, labels;
  int64_t num_classes = 0;

  int64_t count() const { return images.sizes[0]; }
  int64_t height() const { return images.sizes[1]; }
  int64_t width() const { return images.sizes[2]; }
};

/// Returns the only file of the folder that holds `kind` ("images", "labels") for the role; prefers an unpacked file.
std::string find_file(const std::string& folder, data::Split role, const std::string& kind) {
  std::vector<std::string> found;
  for (const std::string& name : list_folder(folder, {}).files) {
    const bool fits_kind = name.find(kind) != std::string::npos && name.find("idx") != std::string::npos;
    const bool is_train = name.find("train") != std::string::npos;
    const bool is_test = name.find("t10k") != std::string::npos || name.find("test") != std::string::npos;
    if (fits_kind && (role == data::Split::train ? is_train : is_test)) found.push_back(name);
  }
  if (found.size() == 2 && found[1] == found[0] + ".gz") found.pop_back();
  const std::string example =
      (role == data::Split::train ? "train-" : "t10k-") + kind + (kind == "images" ? "-idx3-ubyte" : "-idx1-ubyte");
  if (found.empty())
    throw Error(ExitCode::data,
                {.what = "no file like " + example + " or " + example + ".gz in this folder", .where = folder});
  if (found.size() > 1)
    throw Error(ExitCode::data, {.what = found[0] + " and " + found[1] + " both match",
                                 .where = folder,
                                 .hint = "keep only one of them in the folder"});
  return folder + "/" + found[0];
}

IdxImages load_idx(const IdxSpec& spec, const data::DatasetRequest& request) {
  std::error_code ignored;
  if (!std::filesystem::exists(request.path, ignored)) data::throw_missing(request.path, "a folder of IDX files");
  if (!std::filesystem::is_directory(request.path, ignored))
    throw Error(ExitCode::data,
                {.what = "this is a file; format idx needs the folder with the files of images and labels",
                 .where = request.path});
  IdxImages data;
  data.path = request.path;
  const std::string images = find_file(request.path, request.role, "images");
  const std::string labels = find_file(request.path, request.role, "labels");
  request.tell_files({images, labels});
  data.images = read_idx_file(images, 3);
  data.labels = read_idx_file(labels, 1);
  if (data.images.sizes[0] != data.labels.sizes[0])
    throw Error(ExitCode::data, {.what = counted(data.images.sizes[0], "image") + " in " + images + " but " +
                                         counted(data.labels.sizes[0], "label"),
                                 .where = labels});
  const uint8_t* highest = std::max_element(data.labels.values.get(), data.labels.values.get() + data.labels.count);
  data.num_classes =
      request.train ? request.train->layout.outputs : spec.num_classes.value.value_or(int64_t{*highest} + 1);
  if (*highest >= data.num_classes)
    throw Error(ExitCode::data, {.what = "label " + std::to_string(*highest) + " of image " +
                                         std::to_string(highest - data.labels.values.get()) + " is outside of the " +
                                         std::to_string(data.num_classes) + " classes",
                                 .where = labels});
  return data;
}

data::Normalization measure(const IdxImages& images) {
  // Four histograms in turn: with one, equal neighbours would wait for each other's increment.
  std::array<std::array<int64_t, 256>, 4> counts{};
  const uint8_t* values = images.images.values.get();
  int64_t i = 0;
  for (; i + 4 <= images.images.count; i += 4)
    for (size_t lane = 0; lane < 4; ++lane) ++counts[lane][values[i + static_cast<int64_t>(lane)]];
  for (; i < images.images.count; ++i) ++counts[0][values[i]];
  double sum = 0, squares = 0;
  for (size_t value = 0; value < 256; ++value) {
    const auto count = static_cast<double>(counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value]);
    const double scaled = static_cast<double>(value) / 255;
    sum += count * scaled;
    squares += count * scaled * scaled;
  }
  const double mean = sum / static_cast<double>(images.images.count);
  const double deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(images.images.count) - mean * mean));
  return {{mean}, {deviation > 0 ? deviation : 1.0}};
}

class Idx final : public data::Dataset {
 public:
  Idx(const IdxSpec& spec, const data::DatasetRequest& request)
      : Idx(std::make_shared<IdxImages>(load_idx(spec, request)), request.image ? *request.image : data::ImageOptions{},
            request.role, request.train ? request.train->normalization : std::nullopt) {}

  Idx(std::shared_ptr<const IdxImages> images, const data::ImageOptions& options, data::Split role,
      std::optional<data::Normalization> statistics)
      : images_(std::move(images)), options_(options), transform_(options, role, images_->width(), images_->height()) {
    if (options.channels.value.value_or(1) != 1)
      throw Error(ExitCode::usage,
                  {.what = "IDX images are grey", .where = "data.image.channels", .hint = "channels: 1"});
    layout_ = data::SampleLayout::images(transform_.height(), transform_.width(), 1, images_->num_classes);
    normalization_ = options.mean ? statistics_for(options, 1, {}) : statistics ? *statistics : measure(*images_);
  }

  int64_t size() const override { return images_->count(); }
  const data::SampleLayout& layout() const override { return layout_; }
  bool is_cheap_to_read() const override { return true; }
  std::optional<data::Normalization> normalization() const override { return normalization_; }
  std::string describe() const override { return describe_images(size(), layout_); }
  std::optional<int64_t> class_of(int64_t index) const override {
    return images_->labels.values[static_cast<size_t>(index)];
  }

  uint64_t content_hash() const override {
    return data::content_hash(2, [this](int64_t index) {
      const IdxArray& array = index == 0 ? images_->images : images_->labels;
      return data::content_of(std::as_bytes(std::span(array.values.get(), static_cast<size_t>(array.count))));
    });
  }

  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override {
    const data::ImageView image{images_->images.values.get() + index * images_->width() * images_->height(),
                                images_->width(), images_->height(), 1};
    const data::Fit fit = transform_.fit(index, context, image.width, image.height);
    auto* const pixels = row.values<uint8_t>(0);
    data::fit_image(image, fit, pixels);
    transform_.recolour(index, context, {pixels, fit.width, fit.height, 1, &normalization_});
    *row.values<int64_t>(1) = class_of(index).value();
  }

  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override {
    return std::make_shared<data::Subset>(std::make_shared<Idx>(images_, options_, role, normalization_), begin, end);
  }

 private:
  std::shared_ptr<const IdxImages> images_;
  data::ImageOptions options_;
  data::ImageTransform transform_;
  data::SampleLayout layout_;
  data::Normalization normalization_;
};

const config::Registered<Idx, IdxSpec> registered_idx{data::catalog(), "idx", "MNIST's IDX files, plain or gzip"};

}  // namespace
}  // namespace gputrain::datasets
