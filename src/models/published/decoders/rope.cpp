#include "rope.hpp"

#include <algorithm>
#include <cmath>

namespace gputrain::models {
namespace {

// Returns the key in use: transformers 4 writes `rope_scaling` and, beside it, `rope_theta`; transformers 5 writes
// `rope_parameters`, and reads `rope_scaling` if there are both.
const char* rope_key(const ConfigReader& reader) {
  const nlohmann::json* scaling = reader.find("rope_scaling");
  return scaling != nullptr && !scaling->empty() ? "rope_scaling" : "rope_parameters";
}

/// Returns our option for the rope_type, in older files `type`.
std::string type_of(const ConfigReader& rope) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return "none";
  if (type == "linear" || type == "llama3" || type == "yarn") return type;
  rope.refuse("rope_type '" + type + "' is not supported; default, linear, llama3 and yarn are",
              type == "dynamic" ? "take it out of config.json: it acts only on texts beyond max_position_embeddings"
                                : "use weights with one of those");
}

void add_original_positions(SpecOptions& options, const ConfigReader& rope) {
  const auto original = rope.size("original_max_position_embeddings");
  if (original) options.add("rope_scaling.original_max_position_embeddings", *original);
}

/// Returns the attention factor as DeepSeek writes it: as a quotient of two.
std::optional<double> quotient_of_scales(const ConfigReader& rope) {
  const double all = rope.number("mscale_all_dim", 0), one = rope.number("mscale", 0);
  if (one == 0 || all == 0) return std::nullopt;  // ignored if alone, as in transformers
  const double growth = std::log(std::max(rope.required_number("factor"), 1.0));
  return (0.1 * one * growth + 1) / (0.1 * all * growth + 1);
}

void add_yarn(SpecOptions& options, const ConfigReader& rope) {
  options.add("rope_scaling.beta_fast", rope.number("beta_fast", 32));
  options.add("rope_scaling.beta_slow", rope.number("beta_slow", 1));
  options.add("rope_scaling.truncate", rope.flag("truncate", true));
  if (rope.find("attention_factor") != nullptr) {
    options.add("rope_scaling.attention_factor", rope.number("attention_factor", 1));
  } else if (const auto factor = quotient_of_scales(rope)) {
    options.add("rope_scaling.attention_factor", *factor);
  }
  add_original_positions(options, rope);
}

}  // namespace

Rope rope_of(const ConfigReader& reader, const std::string& where, const RopeKeys& keys) {
  const std::string key = rope_key(reader);
  const nlohmann::json* found = reader.find(key.c_str());
  Rope rope{.map = found != nullptr ? *found : nlohmann::json::object(), .where = where + ", " + key};
  if (!rope.map.is_object()) reader.refuse("'" + key + "' is not a map");
  const ConfigReader map(rope.map, rope.where);
  rope.theta = map.number("rope_theta", reader.number(keys.theta, keys.default_theta));
  rope.share = map.number("partial_rotary_factor", reader.number(keys.share, keys.default_share));
  return rope;
}

void expect_whole_heads(const Rope& rope) {
  if (rope.share == 1) return;
  ConfigReader(rope.map, rope.where).refuse("'partial_rotary_factor' other than 1 is not supported in this family");
}

void add_rope(SpecOptions& options, const Rope& rope, bool may_scale) {
  const ConfigReader map(rope.map, rope.where);
  options.add("rope_theta", rope.theta);
  const std::string scaling = type_of(map);
  if (!may_scale && scaling != "none") map.refuse("rope_type '" + scaling + "' is not supported in this family");
  options.add("rope_scaling.type", scaling.c_str());
  if (scaling != "none") options.add("rope_scaling.factor", map.required_number("factor"));
  if (scaling == "yarn") add_yarn(options, map);
  if (scaling != "llama3") return;
  options.add("rope_scaling.low_freq_factor", map.required_number("low_freq_factor"));
  options.add("rope_scaling.high_freq_factor", map.required_number("high_freq_factor"));
  add_original_positions(options, map);
}

nlohmann::json rope_scaling_config(const RopeScalingSpec& spec, const GptSizes& sizes) {
  if (spec.type == "none") return nullptr;
  nlohmann::json config{{"rope_type", spec.type}, {"factor", spec.factor}};
  if (spec.type == "linear") return config;
  config["original_max_position_embeddings"] = spec.original_max_position_embeddings.value_or(sizes.positions);
  if (spec.type == "llama3") {
    config["low_freq_factor"] = spec.low_freq_factor;
    config["high_freq_factor"] = spec.high_freq_factor;
    return config;
  }
  config["beta_fast"] = spec.beta_fast;
  config["beta_slow"] = spec.beta_slow;
  config["truncate"] = spec.truncate;
  config["attention_factor"] = sizes.rotary_scaling.growth;
  return config;
}

}  // namespace gputrain::models
