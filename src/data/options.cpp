#include "gputrain/data/options.hpp"

namespace gputrain::data {

void ImageOptions::check(const ImageOptions& options, config::Complaints& complaints) {
  const auto& crop = options.augment.random_resized_crop;
  if (crop && !(crop->front() > 0 && crop->front() <= crop->back()))
    complaints.about("augment.random_resized_crop",
                     "the least and the greatest part of the area, above 0 and in this order",
                     "random_resized_crop: [0.08, 1.0]");
  if (crop && options.augment.random_crop_padding > 0)
    complaints.about("augment.random_crop_padding", "random_resized_crop and random_crop_padding exclude each other");
  if (crop && options.size.is_auto())
    complaints.about("size", "random_resized_crop needs the size to resize to", "size: 224");
  const int64_t channels = options.channels.value.value_or(0);
  if (channels == 2) complaints.about("channels", "images have 1 (grey) or 3 (RGB) channels");
  if (options.mean.has_value() != options.std.has_value()) {
    const std::string set = options.mean ? "mean" : "std", missing = options.mean ? "std" : "mean";
    complaints.about(set, "mean and std go together, and there is no " + missing,
                     "give both, or leave " + set + " out");
  }
  for (const auto* statistic : {&options.mean, &options.std})
    if (*statistic && channels > 0 && std::ssize(**statistic) != channels)
      complaints.about(statistic == &options.mean ? "mean" : "std", "one value for each channel is needed");
}

}  // namespace gputrain::data
