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

/// The parts of a conversation that are learned.
struct Learning {
  enum class Ends { of_turns, last, all, none };

  std::vector<std::string> roles{"assistant"};  // roles whose messages are learned
  Ends ends = Ends::of_turns;  // marks at the end of turns that are learned: those of learned messages, ...
};

class TemplateHabits;

/// Conversations of one template. Immutable, so thread-safe.
class Conversations {
 public:
  /// `variables` are those that all conversations have for the template.
  Conversations(ChatTemplate chat_template, const nlohmann::ordered_json& variables, Learning learning);

  /// Returns the rendered conversation with the ranges that are learned: the template's text of a message, without the
  /// header, or the text that it marks by `{% generation %}`. The header is the text that it also writes for the model
  /// to go on. The mark that ends a turn is learned with it, and so is the text that the template writes after the last
  /// one. If only the next message's header ends a turn, its mark does. A message's own `weight` of 0, or `train` of
  /// false, keeps it from being learned. `variables` are for the template, as for ChatTemplate::render. Throws
  /// Error(data) if messages are not valid or if the template does not tell.
  LearnedText learned(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables) const;

  /// Returns the marks <|...|> of the template in a short conversation.
  std::vector<std::string> marks() const;

  /// Returns the keys of messages that neither this class nor the template reads.
  std::vector<std::string> unread_keys(const nlohmann::ordered_json& messages) const;

 private:
  ChatTemplate template_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  Learning learning_;
  std::shared_ptr<const TemplateHabits> habits_;
};

/// Throws Error(data), which names the message, unless this is a list of objects with a string "role" and a "content":
/// a string, a list of {"type": "text", "text": ...}, or null beside "tool_calls".
void check_messages(const nlohmann::ordered_json& messages);

/// Returns a list of messages, or its JSON text, with the keys and roles that templates know: `from` and `value` are
/// read as `role` and `content`, human as user, gpt and model as assistant, observation as tool, and so on; a
/// function_call as a message with tool_calls. Throws Error(data).
nlohmann::ordered_json usual_messages(const nlohmann::ordered_json& given);

/// Returns the messages before the answer in a record with "instruction" or "question": "system", the rounds of
/// "history", and the instruction with "input" or "context". Throws Error(data).
nlohmann::ordered_json alpaca_prompt(const nlohmann::ordered_json& record);

/// Returns the messages of one record of a dataset: its "messages" or "conversations" after its "system", or made from
/// Alpaca's and Dolly's columns: a prompt as above with "output" or "response". Throws Error(data).
nlohmann::ordered_json messages_of(const nlohmann::ordered_json& record);

}  // namespace gputrain::chat
