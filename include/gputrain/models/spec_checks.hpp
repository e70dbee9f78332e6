// Checks of options that several models share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

// Limits far above any model, and low enough that their products do not overflow.
constexpr double kMostLayers = 1e5, kMostChannels = 1e7, kMostRows = 1e8;

/// Returns the job's number of classes (`key`), else the data's. Throws Error(usage) if the data has more than the job.
int64_t classes_of(const std::optional<int64_t>& num_classes, const DataFacts& facts,
                   const std::string& key = "num_classes");

constexpr const char* kSlidingAttention = "sliding_attention";  // a layer type

/// Returns the window of each layer, 0 for none: those that the repeated `layer_types` name have it; empty: all.
std::vector<int64_t> windows_of(int64_t layers, const std::optional<int64_t>& window,
                                const std::vector<std::string>& layer_types);
/// Complains about a window without layers, and layers without a window.
void check_layer_types(int64_t layers, const std::optional<int64_t>& window,
                       const std::vector<std::string>& layer_types, config::SpecIssues& issues);

/// Complains at `key` where `whole` is no multiple of `part`.
void check_division(config::SpecIssues& issues, const char* key, const char* whole_name, int64_t whole,
                    const char* part_name, int64_t part);

/// Shape of an image. image_shape_of() throws Error(usage) if the data is not images.
struct ImageShape {
  int64_t channels, height, width;
};
ImageShape image_shape_of(const DataFacts& facts);

}  // namespace gputrain::models
