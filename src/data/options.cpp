#include "gputrain/data/options.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::data {

ImageExtent extent_of(const ImageSides& sides, const ImageExtent& otherwise) {
  if (sides.is_auto()) return otherwise;
  return {.height = sides.value->values.front(), .width = sides.value->values.back()};
}

void ImageOptions::check(const ImageOptions& options, config::SpecIssues& issues) {
  std::string crop;
  for (const auto& [name, augmentation] : options.augment.active()) {
    if (augmentation->needs_size() && options.size.is_auto())
      issues.add("size", name + " needs the size to resize to", "size: 224");
    if (!augmentation->crops()) continue;
    if (!crop.empty()) issues.add("augment." + name, crop + " and " + name + " exclude each other");
    crop = name;
  }
  const int64_t channels = options.channels.value.value_or(0);
  if (channels == 2) issues.add("channels", "images have 1 (grey) or 3 (RGB) channels");
  if (options.mean.has_value() != options.std.has_value()) {
    const std::string set = options.mean ? "mean" : "std", missing = options.mean ? "std" : "mean";
    issues.add(set, "mean and std must be set together; missing: " + missing, "give both, or leave " + set + " out");
  }
  for (const auto* statistic : {&options.mean, &options.std})
    if (*statistic && channels > 0 && std::ssize(**statistic) != channels)
      issues.add(statistic == &options.mean ? "mean" : "std", "one value for each channel is needed");
}

std::optional<std::string> ColumnNames::one_label() const {
  if (!label) return std::nullopt;
  if (label->values.size() == 1) return label->values[0];
  throw Error(ExitCode::usage, {.what = "several columns of labels, and this model learns from one",
                                .where = "data.text.columns.label",
                                .hint = "several are classes: task: {type: multi_label_classification}"});
}

}  // namespace gputrain::data
