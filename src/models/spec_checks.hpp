// What several models check about their options before they are built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// The job's number of classes (the value of `key`), or the data's. Throws Error(usage) when the data has more than the
/// job says.
int64_t classes_of(const std::optional<int64_t>& num_classes, const DataFacts& facts,
                   const std::string& key = "num_classes");

/// [channels, height, width]; throws Error(usage) when the data are not images.
struct ImageShape {
  int64_t channels, height, width;
};
ImageShape image_shape_of(const DataFacts& facts);

}  // namespace gputrain::models
