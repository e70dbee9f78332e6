// Reads JSON that others wrote: its size and its depth have limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gputrain {

/// Lists and objects within each other. A deeper value can be parsed, but copying or printing it takes all of the
/// stack.
inline constexpr int kMostJsonDepth = 200;

/// Bytes of a file that describes something, such as a config.json or an index of shards. Values take up to fifty times
/// as many in memory.
inline constexpr int64_t kMostJsonBytes = int64_t{64} << 20;

/// Returns what the library says is wrong, without the number that it gives the mistake.
std::string reason_in(const nlohmann::json::exception& error);

bool is_nested_too_deep(std::string_view json) noexcept;

/// Parses JSON; a discarded value if the text is not JSON, or nested deeper than kMostJsonDepth.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (is_nested_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// Reads a file's text; an empty one if there is no such file. Throws Error(data) if it is larger than kMostJsonBytes.
std::string read_json_text(const std::filesystem::path& path);

/// Parses a file; a discarded value if there is no such file, or no JSON in it that parse_json() takes.
template <typename Json = nlohmann::json>
Json parse_json_file(const std::filesystem::path& path) {
  return parse_json<Json>(read_json_text(path));
}

/// Returns the value of a key. `fallback` if it is missing or of another type, as in a line that another program wrote.
template <typename Value>
Value json_value(const nlohmann::json& object, const char* key, Value fallback) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<Value, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else if constexpr (std::is_integral_v<Value>) {
    return found->is_number_integer() ? found->template get<Value>() : fallback;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return found->is_number() ? found->template get<Value>() : fallback;
  } else {
    return found->is_string() ? found->template get<std::string>() : fallback;
  }
}
inline std::string json_value(const nlohmann::json& object, const char* key, const char* fallback) {
  return json_value(object, key, std::string(fallback));
}

}  // namespace gputrain
