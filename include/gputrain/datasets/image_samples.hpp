// Encoded images with classes, from any storage; decoded and fitted on each read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/datasets/left_out.hpp"

namespace gputrain::datasets {

/// Masks of images: PNG files as large as their images, whose numbers stand for classes.
class MaskStore {
 public:
  /// Maps each number by `class_of` to its class, kIgnoreIndex, or kNoClass.
  explicit MaskStore(const std::array<int64_t, 256>& class_of) : class_of_(class_of) {}
  virtual ~MaskStore() = default;

  static constexpr int64_t kNoClass = -1;

  virtual std::string full_name(int64_t index) const = 0;  // for messages
  virtual void read(int64_t index, std::vector<std::byte>& bytes) const = 0;
  virtual data::Content content(int64_t index) const = 0;

  const std::array<int64_t, 256>& class_of() const noexcept { return class_of_; }

 private:
  std::array<int64_t, 256> class_of_;
};

/// Images, each with a class, a row of numbers or a mask. Filled once, then read from any thread.
class ImageStore {
 public:
  virtual ~ImageStore() = default;

  int64_t size() const noexcept { return std::ssize(ends_); }
  /// Returns the class; -1: the image cannot be read.
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  /// Returns the names of the classes, or of the numbers of a row.
  const std::vector<std::string>& class_names() const noexcept { return class_names_; }
  bool has_rows() const noexcept { return labels_.empty(); }
  std::span<const float> row(int64_t index) const {
    return std::span(rows_).subspan(static_cast<size_t>(index) * class_names_.size(), class_names_.size());
  }

  /// Names the unused columns of a list; empty: none.
  virtual std::string unread() const { return {}; }
  /// Returns the path below the root; "<class>/<rest>" if folders are the classes.
  std::string_view name(int64_t index) const;
  virtual std::string full_name(int64_t index) const = 0;  // for messages
  virtual void read(int64_t index, std::vector<std::byte>& bytes) const = 0;
  /// Returns null if each image has a class. Else each pixel has one.
  virtual const MaskStore* masks() const noexcept { return nullptr; }

  /// Returns a hash of all names, classes and numbers, and of some of the images and masks.
  uint64_t content_hash() const;

 protected:
  virtual data::Content content(int64_t index) const = 0;

  /// Sets names "<class>/<rest>", in their final order. `known` are the classes of the training data, which are the
  /// only ones allowed; empty: takes the classes from the names. `where` is for messages.
  void set_names(const std::vector<std::string>& names, const std::vector<std::string>& known,
                 const std::string& where);
  /// Sets the same, with a class number for each name.
  void set_labels(const std::vector<std::string>& names, std::vector<int32_t> labels,
                  const std::vector<std::string>& known, const std::string& where);

  /// Sets the same with a row of numbers, [names, columns], instead of a class.
  void set_rows(const std::vector<std::string>& names, std::vector<float> rows, std::vector<std::string> columns);

 private:
  void keep(const std::vector<std::string>& names, std::vector<int32_t> labels);

  std::string names_;  // concatenated names: a million small strings would take three times the memory
  std::vector<size_t> ends_;
  std::vector<int32_t> labels_;  // classes; empty: there are rows
  std::vector<float> rows_;
  std::vector<std::string> class_names_;
};

data::Content content_of_file(const std::string& path);

bool is_image_name(std::string_view name);
/// Decides by the name, or else by the content. Throws Error(data) if it cannot be opened.
bool is_image_file(const std::string& path);
/// Returns whether the name is that of an image format without a decoder here.
bool is_unread_image_name(std::string_view name);
/// Warns because ignored images would otherwise only show as a lower score.
void warn_of_unread_images(const std::string& where, const LeftOut& images);
/// Keeps only the images that are read among the files of a folder, and warns of others that may be images.
void keep_images(std::vector<std::string>& names, const std::string& where);

/// Returns the classes of the training data if val or test is opened; otherwise empty.
std::vector<std::string> known_classes(const data::DatasetRequest& request);

data::ImageOptions image_options(const data::DatasetRequest& request);

class ImageSamples : public data::Dataset {
 public:
  ImageSamples(std::shared_ptr<const ImageStore> store, const data::ImageOptions& options, data::Split role);

  int64_t size() const override { return store_->size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override;
  std::optional<data::Normalization> normalization() const override { return normalization_; }
  std::vector<std::string> class_names() const override { return store_->class_names(); }
  std::optional<int64_t> class_of(int64_t index) const override;
  std::string sample_name(int64_t index) const override { return std::string(store_->name(index)); }
  uint64_t content_hash() const override { return store_->content_hash(); }
  std::string describe() const override;

 protected:
  const ImageStore& store() const noexcept { return *store_; }

 private:
  struct UprightImage {
    data::ImageDecoder::Size size;
    bool is_turned = false;  // true: it is stored in another orientation
  };
  void read_mask(int64_t index, const UprightImage& image, const data::Fit& fit, int64_t* to) const;
  /// Warns once of an image whose size differs from that of those that gave the input its size.
  void warn_of_size(int64_t index, const data::ImageDecoder::Size& size) const;

  std::shared_ptr<const ImageStore> store_;
  data::ImageOptions options_;
  std::optional<data::ImageDecoder::Size> common_size_;  // set with `size: auto`
  mutable std::atomic<bool> has_warned_ = false, has_warned_of_turn_ = false;
  std::unique_ptr<const data::ImageTransform> transform_;
  data::SampleLayout layout_;
  data::Normalization normalization_;
};

}  // namespace gputrain::datasets
