// Checks of options that several models share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// The job's number of classes (the value of `key`), else the data's. Throws Error(usage) if the data has more classes
/// than the job sets.
int64_t classes_of(const std::optional<int64_t>& num_classes, const DataFacts& facts,
                   const std::string& key = "num_classes");

/// [channels, height, width]. image_shape_of() throws Error(usage) if the data is not images.
struct ImageShape {
  int64_t channels, height, width;
};
ImageShape image_shape_of(const DataFacts& facts);

}  // namespace gputrain::models
