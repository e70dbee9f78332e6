// Which bytes of a rendered conversation are a message's, and which of these the model says itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "template_habits.hpp"

namespace gputrain::chat {

/// What a template writes for one message.
struct Turn {
  size_t message = 0;
  std::vector<Range> said;   // without the header; in order, apart from each other; empty: the template leaves it out
  std::optional<Range> end;  // what ends the turn: the last part of what is said
};

/// The turns of all messages; of others than the assistant's that are not learned, with their headers. Appends to
/// `rendered` the mark that ends the last turn, if only the next message would bring it. Throws Error(data) if the
/// template does not tell what is learned.
std::vector<Turn> find_turns(const ChatTemplate& chat_template, const TemplateHabits& habits,
                             const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables,
                             const std::vector<bool>& is_learned, Rendered& rendered);

}  // namespace gputrain::chat
