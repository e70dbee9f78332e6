// Rotary positions in a config.json.
#pragma once

#include <string>

#include "../config_json.hpp"

namespace gputrain::models {

/// What a config.json says about rotary positions, apart from its other keys.
struct Rope {
  nlohmann::json map;  // rope_type and what belongs to it
  std::string where;   // for messages
  double theta = 10000;
  double share = 1;  // of a head's channels that are rotated
};

/// What families call the keys beside the map, and what these are where they are missing.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* share = "partial_rotary_factor";
  double default_theta = 10000, default_share = 1;
};

/// Reads the form of transformers 4 or 5. `where` is the path of the config.json.
Rope rope_of(const ConfigReader& reader, const std::string& where, const RopeKeys& keys = {});

/// Throws Error(data) if a part of the heads is rotated.
void expect_whole_heads(const Rope& rope);

/// Adds theta and scaling. Throws Error(data) for what we do not compute, or for a scaling where the family has none.
void add_rope(SpecOptions& options, const Rope& rope, bool may_scale = true);

/// The rope_scaling of a config.json, as transformers 4 and 5 read it; null: none.
nlohmann::json rope_scaling_config(const RopeScalingSpec& spec, const GptSizes& sizes);

}  // namespace gputrain::models
