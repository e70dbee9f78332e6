// Image statistics, and one-line descriptions of datasets.
#pragma once

#include <string>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::datasets {

/// Returns ImageNet's mean and std, commonly used for photographs; for grey images their averages.
data::Normalization imagenet_statistics(int64_t channels);

/// Returns the statistics in the options, else `otherwise`. Throws Error(usage) if there is not one value per channel.
data::Normalization statistics_for(const data::ImageOptions& options, int64_t channels, data::Normalization otherwise);

/// Returns "60,000 images 28x28x1, 10 classes".
std::string describe_images(int64_t count, const data::SampleLayout& layout);

}  // namespace gputrain::datasets
