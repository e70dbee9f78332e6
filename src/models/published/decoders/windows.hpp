// Layers with a sliding window in a config.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../config_json.hpp"

namespace gputrain::models {

constexpr const char *kSlidingLayer = "sliding_attention", *kFullLayer = "full_attention";

/// Returns the `layer_types` of a config.json; if it has none, they follow `is_sliding`. Throws Error(data) for a list
/// of another length, or with types that we do not compute.
std::vector<std::string> layer_types_of(const ConfigReader& reader, int64_t layers,
                                        const std::function<bool(int64_t layer)>& is_sliding);

/// Adds the window and the layers that have it. A window that no layer has is left out.
void add_windows(SpecOptions& options, int64_t window, const std::vector<std::string>& layer_types);

/// Number of layers with a window in a model, and its size; 0: none.
struct Windows {
  int64_t layers = 0, size = 0;
};
Windows windows_in(const std::vector<int64_t>& windows);

/// Returns each layer's type, as transformers writes it.
std::vector<std::string> layer_types_in(const std::vector<int64_t>& windows);

}  // namespace gputrain::models
