// Parts of a conversation that its template does not write: they are refused, or warned of once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "template_habits.hpp"

namespace gputrain::chat {

/// A conversation in the form that the template takes, and its rendering.
struct Given {
  const ChatTemplate& chat_template;
  const TemplateHabits& habits;
  const nlohmann::ordered_json &messages, &variables;
  const Rendered& rendered;
};

/// Returns the texts of a message's content that are not blank, stripped.
std::vector<std::string_view> words_of(const nlohmann::ordered_json& message);

/// Warns once of each role whose messages are not written. `roles` are those that the data has.
void tell_lost_messages(const Given& given, const std::vector<std::string>& roles);

/// Warns once of each variable that the template does not read, and of tools that it does not write.
void tell_lost_variables(const Given& given);

/// Returns whether the template reads a key of messages that have this role: with another value it writes another text.
bool reads_key(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages,
               const nlohmann::ordered_json& variables, const std::string& role, const std::string& key);

/// Throws Error(data) if a call of a tool is not written.
void check_calls(const Given& given);

}  // namespace gputrain::chat
