// Conversations as training data: their text by a chat template, and what of it the assistant says.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/chat/model_templates.hpp"

namespace gputrain::chat {

struct LearnedText {
  std::string text;
  std::vector<Range> learned;  // in order, apart from each other; with what ends the assistant's turn
};

/// What the template marks by `{% generation %}`. Without such marks, what rendering one message more adds behind the
/// prompt for it; of earlier turns, what is left of that in the whole text. `variables` are as for
/// ChatTemplate::render. Throws Error(data) if messages are not valid or if the template does not tell what the
/// assistant says.
LearnedText learned_text(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& variables);

/// Throws Error(data), which says which message is wrong, unless this is a list of objects with a string "role" and a
/// "content": a string, a list of {"type": "text", "text": ...}, or null where there are "tool_calls".
void check_messages(const nlohmann::ordered_json& messages);

/// The messages of one record of a dataset: its "messages", or made from ShareGPT's "conversations" (from, value) or
/// Alpaca's "instruction", "input", "output", "system". Throws Error(data).
nlohmann::ordered_json messages_of(const nlohmann::ordered_json& record);

}  // namespace gputrain::chat
