// Rotary positions in a config.json.
#pragma once

#include <string>

#include "../config_json.hpp"

namespace gputrain::models {

/// Settings of a config.json for rotary positions, without its other keys.
struct Rope {
  nlohmann::json map;  // rope_type and its own keys
  std::string where;   // for messages
  double theta = 10000;
  double share = 1;  // share of a head's channels that are rotated
};

/// Keys of a family beside the map, and their values if they are missing.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* share = "partial_rotary_factor";
  double default_theta = 10000, default_share = 1;
};

/// Reads the form of transformers 4 or 5. `where` is the path of the config.json.
Rope rope_of(const ConfigReader& reader, const std::string& where, const RopeKeys& keys = {});

/// Throws Error(data) if only a part of each head is rotated.
void expect_whole_heads(const Rope& rope);

/// Adds theta and scaling. Throws Error(data) for what we do not compute, or for a scaling if the family has none.
void add_rope(SpecOptions& options, const Rope& rope, bool may_scale = true);

/// Returns the rope_scaling of a config.json, as transformers 4 and 5 read it; null: none.
nlohmann::json rope_scaling_config(const RopeScalingSpec& spec, const GptSizes& sizes);

}  // namespace gputrain::models
