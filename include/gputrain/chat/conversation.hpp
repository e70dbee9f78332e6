// Conversations as training data: their text by a chat template, and what of it the assistant says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/chat/model_templates.hpp"

namespace gputrain::chat {

struct LearnedText {
  struct Part {
    Range range;
    size_t message;
  };
  std::string text;
  std::vector<Part> learned;  // in order, apart from each other
};

/// What is learned of a conversation.
struct Learning {
  enum class Ends { of_turns, last, all, none };

  std::vector<std::string> roles{"assistant"};  // whose messages
  Ends ends = Ends::of_turns;                   // which of the marks that end turns: those of learned messages, ...
};

class TemplateHabits;

/// Conversations of one template. Immutable, so thread-safe.
class Conversations {
 public:
  /// `variables` are those that all conversations have for the template.
  Conversations(ChatTemplate chat_template, const nlohmann::ordered_json& variables, Learning learning);

  /// What the messages' turns say: what the template writes at a message, without the header that it also writes for
  /// the model to go on, or what it marks by `{% generation %}`. The mark that ends a turn is learned with it, and so
  /// is what the template writes after the last one. If only the next message's header ends a turn, its mark does. A
  /// message's own `weight` of 0, or `train` of false, keeps it from being learned. `variables` are for the template,
  /// as for ChatTemplate::render. Throws Error(data) if messages are not valid or if the template does not tell.
  LearnedText learned(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables) const;

  /// The marks <|...|> of the template in a short conversation.
  std::vector<std::string> marks() const;

  /// Keys of messages that neither this nor the template reads.
  std::vector<std::string> unread_keys(const nlohmann::ordered_json& messages) const;

 private:
  ChatTemplate template_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  Learning learning_;
  std::shared_ptr<const TemplateHabits> habits_;
};

/// Throws Error(data), which says which message is wrong, unless this is a list of objects with a string "role" and a
/// "content": a string, a list of {"type": "text", "text": ...}, or null where there are "tool_calls".
void check_messages(const nlohmann::ordered_json& messages);

/// A list of messages, or its JSON text, with the keys and roles that templates know: `from` and `value` are read as
/// `role` and `content`, human as user, gpt and model as assistant, observation as tool, and so on; a function_call as
/// a message with tool_calls. Throws Error(data).
nlohmann::ordered_json usual_messages(const nlohmann::ordered_json& given);

/// What comes before an answer in a record with "instruction" or "question": "system", the rounds of "history", and the
/// instruction with "input" or "context". Throws Error(data).
nlohmann::ordered_json alpaca_prompt(const nlohmann::ordered_json& record);

/// The messages of one record of a dataset: its "messages" or "conversations" after its "system", or made from
/// Alpaca's and Dolly's columns: a prompt as above with "output" or "response". Throws Error(data).
nlohmann::ordered_json messages_of(const nlohmann::ordered_json& record);

}  // namespace gputrain::chat
