#include "summary.hpp"

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::datasets {

data::Normalization imagenet_statistics(int64_t channels) {
  if (channels == 3) return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  return {{0.449}, {0.226}};
}

data::Normalization statistics_for(const data::ImageOptions& options, int64_t channels, data::Normalization otherwise) {
  if (!options.mean || !options.std) return otherwise;
  if (std::ssize(*options.mean) != channels || std::ssize(*options.std) != channels)
    throw Error(ExitCode::usage,
                {.what = "the images have " + std::to_string(channels) + " channels; one value for each is needed",
                 .where = "data.image.mean and data.image.std"});
  return {*options.mean, *options.std};
}

std::string describe_images(int64_t count, const data::SampleLayout& layout) {
  std::string text = counted(count, "image") + " ";
  const auto& sizes = layout.input().sizes;
  for (size_t d = 0; d < sizes.size(); ++d) text += (d ? "x" : "") + std::to_string(sizes[d]);
  const bool has_classes = layout.target() != nullptr && layout.target()->type == at::kLong;
  return text + ", " + (has_classes ? counted(layout.outputs, "class") : counted(layout.outputs, "number") + " each");
}

}  // namespace gputrain::datasets
