#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::app {

/// Returns one line of output; bytes that are not UTF-8 are replaced.
inline std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gputrain::app
