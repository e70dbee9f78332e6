// What a conversation gives that its template does not write: refused, or told once.
#pragma once

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "template_habits.hpp"

namespace gputrain::chat {

/// A conversation, as the template takes it, and what the template makes of it.
struct Given {
  const ChatTemplate& chat_template;
  const TemplateHabits& habits;
  const nlohmann::ordered_json &messages, &variables;
  const Rendered& rendered;
};

/// Throws Error(data) if a call of a tool is not written.
void check_calls(const Given& given);

}  // namespace gputrain::chat
