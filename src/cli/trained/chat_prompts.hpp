// Prompts in the format of a chat model.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Messages so far, as a text that the model continues with its answer.
class Conversation {
 public:
  /// Starts with the system's message. Throws Error(usage) if the model's tokenizer is not a published one; Error(data)
  /// if there is no chat template.
  Conversation(const trained::Model& model, const std::string& system);

  /// Adds a message of the user, and returns the text before the answer.
  std::string ask(const std::string& text);
  void note_answer(const std::string& text);
  /// Forgets all messages except the system's.
  void begin_anew();

 private:
  chat::ChatTemplate template_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  size_t kept_ = 0;  // number of first messages, which are never forgotten
};

}  // namespace gputrain::app
