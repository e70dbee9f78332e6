#include "gputrain/monitor/tracked_settings.hpp"

#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "gputrain/core/secrets.hpp"

namespace gputrain::monitor {
namespace {

std::optional<double> number_of(const std::string& yaml) {
  const bool is_plain = !yaml.empty() && yaml.find_first_not_of("0123456789+-.eE") == std::string::npos;
  double value = 0;
  const auto [end, mistake] = std::from_chars(yaml.data(), yaml.data() + yaml.size(), value);
  return is_plain && mistake == std::errc() && end == yaml.data() + yaml.size() ? std::optional(value) : std::nullopt;
}

bool is_secret(const std::string& key, const std::string& yaml) {
  const bool is_variable = key.starts_with("env.");
  if (!is_variable && !value_of(yaml).is_string()) return false;
  return is_secret_name(key.substr(key.rfind('.') + 1));  // npos + 1 is 0
}

}  // namespace

Settings masked(const Settings& settings) {
  Settings safe;
  for (const auto& [key, value] : settings) safe[key] = is_secret(key, value) ? "***" : without_url_secrets(value);
  return safe;
}

nlohmann::json value_of(const std::string& yaml) {
  if (yaml == "null" || yaml == "~" || yaml.empty()) return nullptr;
  if (yaml == "true" || yaml == "false") return yaml == "true";
  if (yaml.starts_with('"')) {
    auto text = parse_json(yaml);  // YAML's quotes are those of JSON, except for rare escapes
    if (text.is_string()) return text;
  }
  const auto number = number_of(yaml);
  if (!number) return yaml;
  const bool is_whole = yaml.find_first_of(".eE") == std::string::npos && std::abs(*number) < 9e15;
  return is_whole ? nlohmann::json(static_cast<int64_t>(*number)) : nlohmann::json(*number);
}

}  // namespace gputrain::monitor
