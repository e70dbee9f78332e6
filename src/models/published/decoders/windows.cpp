#include "windows.hpp"

#include <algorithm>

namespace gputrain::models {
namespace {

constexpr int64_t kMostListed = 10000;  // limit for listing types; published models have some hundred layers at most

/// Returns the shortest list whose repetition begins with `types`.
std::vector<std::string> shortest_pattern(const std::vector<std::string>& types) {
  size_t length = 1;
  const auto repeats = [&] {
    return std::equal(types.begin() + static_cast<int64_t>(length), types.end(), types.begin());
  };
  while (length < types.size() && !repeats()) ++length;
  return {types.begin(), types.begin() + static_cast<int64_t>(length)};
}

}  // namespace

std::vector<std::string> layer_types_of(const ConfigReader& reader, int64_t layers,
                                        const std::function<bool(int64_t layer)>& is_sliding) {
  if (layers > kMostListed) reader.refuse("'num_hidden_layers' is above " + std::to_string(kMostListed));
  std::vector<std::string> types;
  if (const nlohmann::json* given = reader.find("layer_types")) {
    if (!given->is_array() || std::ssize(*given) != layers) {
      reader.refuse("'layer_types' is no list of " + std::to_string(layers) + " layers");
    }
    for (const auto& type : *given) {
      if (type != kSlidingLayer && type != kFullLayer) {
        reader.refuse("'layer_types' has " + type.dump().substr(0, 40) +
                      "; sliding_attention and full_attention are supported");
      }
      types.push_back(type);
    }
    return types;
  }
  for (int64_t layer = 0; layer < layers; ++layer) types.emplace_back(is_sliding(layer) ? kSlidingLayer : kFullLayer);
  return types;
}

void add_windows(SpecOptions& options, int64_t window, const std::vector<std::string>& layer_types) {
  const auto sliding = std::ranges::count(layer_types, kSlidingLayer);
  if (sliding == 0) return;
  options.add("window", window);
  if (sliding < std::ssize(layer_types)) options.add("layer_types", shortest_pattern(layer_types));
}

Windows windows_in(const std::vector<int64_t>& windows) {
  return {.layers = std::ranges::count_if(windows, [](int64_t window) { return window > 0; }),
          .size = windows.empty() ? 0 : std::ranges::max(windows)};
}

std::vector<std::string> layer_types_in(const std::vector<int64_t>& windows) {
  std::vector<std::string> types;
  for (const int64_t window : windows) types.emplace_back(window > 0 ? kSlidingLayer : kFullLayer);
  return types;
}

}  // namespace gputrain::models
