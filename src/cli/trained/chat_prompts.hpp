// Prompts as a chat model reads them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// What was said, with the text that the model continues with its answer.
class Conversation {
 public:
  /// Throws Error(usage) if the model's tokenizer is not a published one; Error(data) if there is no chat template.
  Conversation(const trained::Model& model, const std::string& system);

  /// The text after which the answer comes.
  std::string ask(const std::string& text);
  void note_answer(const std::string& text);
  /// Forgets all but the system's message.
  void begin_anew();

 private:
  chat::ChatTemplate template_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  size_t kept_ = 0;  // the first messages, which are never forgotten
};

}  // namespace gputrain::app
