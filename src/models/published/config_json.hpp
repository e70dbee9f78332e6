// Helpers of the families: read a config.json, and write the one of a Gpt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "../texts/gpt.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/published.hpp"

namespace gputrain::models {

/// Reader of the keys of one config.json. Throws an error that names file and key if a value has the wrong type.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& config, std::string where) : config_(config), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string what, std::string hint = {}) const {
    throw Error(ExitCode::data, {.what = std::move(what), .where = where_, .hint = std::move(hint)});
  }

  /// Treats null as missing, as transformers does.
  const nlohmann::json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  bool has(const char* key) const { return config_.contains(key); }

  std::optional<int64_t> size(const char* key) const { return whole(key, 1, "a whole number above 0"); }

  /// Reads a number that may be 0.
  std::optional<int64_t> count(const char* key) const { return whole(key, 0, "a whole number from 0 on"); }

  int64_t required_size(const char* key) const {
    const auto value = size(key);
    if (!value) refuse(std::string("'") + key + "' is missing");
    return *value;
  }

  double number(const char* key, double fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) refuse_value(key, *value, "a number");
    return value->get<double>();
  }

  double required_number(const char* key) const {
    if (find(key) == nullptr) refuse(std::string("'") + key + "' is missing");
    return number(key, 0);
  }

  bool flag(const char* key, bool fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse_value(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) refuse_value(key, *value, "a string");
    return value->get<std::string>();
  }

  /// Rejects a key that changes the computation in a way that we do not support, unless it is null.
  void expect_null(const char* key) const {
    if (find(key) != nullptr) refuse(std::string("'") + key + "' is not supported", "use weights trained without it");
  }

  /// Rejects keys that change the computation in a way that we do not support.
  void expect_flag(const char* key, bool only) const {
    if (flag(key, only) != only) {
      refuse(std::string("'") + key + ": " + (only ? "false" : "true") + "' is not supported",
             "use weights trained without it");
    }
  }

 private:
  std::optional<int64_t> whole(const char* key, int64_t least, const char* expected) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<int64_t>() < least) refuse_value(key, *value, expected);
    return value->get<int64_t>();
  }

  [[noreturn]] void refuse_value(const char* key, const nlohmann::json& value, const char* expected) const {
    refuse(std::string("'") + key + "' is " + value.dump().substr(0, 40) + ", expected " + expected);
  }

  const nlohmann::json& config_;
  std::string where_;
};

/// List of options as YAML scalars.
class SpecOptions {
 public:
  void add(const char* name, int64_t value) { list.emplace_back(name, std::to_string(value)); }
  void add(const char* name, double value) { list.emplace_back(name, nlohmann::json(value).dump()); }
  void add(const char* name, bool value) { list.emplace_back(name, value ? "true" : "false"); }
  void add(const char* name, const char* value) { list.emplace_back(name, value); }
  void add(const char* name, const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    list.emplace_back(name, "[" + text + "]");
  }
  std::vector<std::pair<std::string, std::string>> list;
};

inline bool is_model_type(const nlohmann::json& config, const char* type) {
  const auto found = config.find("model_type");
  return found != config.end() && *found == type;
}

/// Adds the names of the classes, unless they are only numbers.
void add_labels(SpecOptions& defaults, const nlohmann::json& config);
/// Writes the names of the classes, or transformers' numbered ones if there are none.
void note_labels(nlohmann::json& config, int64_t classes, const std::vector<std::string>& names);

/// Adds the keys that the config.json of every language model has.
nlohmann::json completed(nlohmann::json config, const Gpt& model);

}  // namespace gputrain::models
