// The turns of a rendered conversation: the bytes of each message, and those that the model says itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "template_habits.hpp"

namespace gputrain::chat {

/// The text that a template writes for one message.
struct Turn {
  size_t message = 0;
  std::vector<Range> said;   // without the header; in order, apart from each other; empty: the template leaves it out
  std::optional<Range> end;  // end of the turn, the last part of `said`
};

/// Finds the turns of all messages. Turns that are neither the assistant's nor learned keep their headers. Appends to
/// `rendered` the mark that ends the last turn, if only the next message would bring it. Throws Error(data) if the
/// template does not tell what is learned.
std::vector<Turn> find_turns(const ChatTemplate& chat_template, const TemplateHabits& habits,
                             const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables,
                             const std::vector<bool>& is_learned, Rendered& rendered);

}  // namespace gputrain::chat
