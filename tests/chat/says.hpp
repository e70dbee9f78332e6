// Messages for tests of chat templates.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::chat {

inline const nlohmann::ordered_json kNoVariables = nlohmann::ordered_json::object();

inline nlohmann::ordered_json say(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace gputrain::chat
