// What datasets tell of themselves: statistics of their images, and one line for people.
#pragma once

#include <string>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::datasets {

/// ImageNet's, which the field uses for photographs; for grey images their average.
data::Normalization imagenet_statistics(int64_t channels);

/// What the options say, else `otherwise`. Throws Error(usage) when there is not one value for each channel.
data::Normalization statistics_for(const data::ImageOptions& options, int64_t channels, data::Normalization otherwise);

/// "60,000 images 28x28x1, 10 classes"
std::string describe_images(int64_t count, const data::SampleLayout& layout);

}  // namespace gputrain::datasets
