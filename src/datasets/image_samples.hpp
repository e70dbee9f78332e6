// Encoded images with classes, from any storage; decoded and fitted on each read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/options.hpp"
#include "left_out.hpp"

namespace gputrain::datasets {

/// Images with classes. Filled once, then read from any thread.
class ImageStore {
 public:
  virtual ~ImageStore() = default;

  int64_t size() const noexcept { return std::ssize(labels_); }
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  const std::vector<std::string>& class_names() const noexcept { return class_names_; }

  /// Path below the root; "<class>/<rest>" if folders are the classes.
  std::string_view name(int64_t index) const;
  virtual std::string full_name(int64_t index) const = 0;  // for messages
  virtual void read(int64_t index, std::vector<std::byte>& bytes) const = 0;

  /// Of all names and classes, and of some of the images.
  uint64_t content_hash() const;

 protected:
  virtual data::Content content(int64_t index) const = 0;

  /// Sets names "<class>/<rest>", in their final order. `known` are the classes of the training data, which are the
  /// only ones allowed; empty: takes the classes from the names. `where` is for messages.
  void set_names(const std::vector<std::string>& names, const std::vector<std::string>& known,
                 const std::string& where);
  /// The same, with a class number for each name.
  void set_labels(const std::vector<std::string>& names, std::vector<int32_t> labels,
                  const std::vector<std::string>& known, const std::string& where);

 private:
  void keep(const std::vector<std::string>& names, std::vector<int32_t> labels);

  std::string names_;  // concatenated: a million small strings would take three times the memory
  std::vector<size_t> ends_;
  std::vector<int32_t> labels_;
  std::vector<std::string> class_names_;
};

inline constexpr int64_t kMostImageBytes = int64_t{1} << 30;

/// Reads a whole file. Throws Error(data), also for a file of more than kMostImageBytes.
void read_image_file(const std::string& path, std::vector<std::byte>& bytes);
data::Content content_of_file(const std::string& path);

bool is_image_name(std::string_view name);
/// Whether the name is that of an image format without a decoder here.
bool is_unread_image_name(std::string_view name);
/// Without a warning, ignored images would only show as a lower score.
void warn_of_unread_images(const std::string& where, const LeftOut& images);

/// The classes of the training data if val or test is opened; otherwise empty.
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
  std::string sample_name(int64_t index) const override { return std::string(store_->name(index)); }
  uint64_t content_hash() const override { return store_->content_hash(); }
  std::string describe() const override;

 private:
  /// Warns once that an image is of another size than those that gave the input its size.
  void warn_of_size(int64_t index, const data::ImageDecoder::Size& size) const;

  std::shared_ptr<const ImageStore> store_;
  data::ImageOptions options_;
  std::optional<data::ImageDecoder::Size> common_size_;  // with `size: auto`
  mutable std::atomic<bool> has_warned_ = false;
  std::unique_ptr<const data::ImageTransform> transform_;
  data::SampleLayout layout_;
  data::Normalization normalization_;
};

}  // namespace gputrain::datasets
