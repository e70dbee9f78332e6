#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::app {

/// One line of output; what is not UTF-8 is replaced.
inline std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gputrain::app
