#include "chat_prompts.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

using Json = nlohmann::ordered_json;

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

chat::ChatTemplate template_of(const trained::Model& model) {
  if (model.published) return chat::choose_chat_template(model.chat_template, model.tokenizer_folder);
  if (model.chat_template) return chat::choose_chat_template(model.chat_template, {});
  throw Error(ExitCode::usage, {.what = "the model has no chat template: it was not trained on conversations",
                                .where = "--chat",
                                .hint = "leave it out, or set data.text.chat_template"});
}

}  // namespace

Conversation::Conversation(const trained::Model& model, const std::string& system) : template_(template_of(model)) {
  if (system.empty()) return;
  messages_.push_back(message("system", system));
  kept_ = 1;
}

std::string Conversation::ask(const std::string& text) {
  messages_.push_back(message("user", text));
  return template_.render(messages_, /*add_generation_prompt=*/true, Json::object()).text;
}

void Conversation::note_answer(const std::string& text) { messages_.push_back(message("assistant", text)); }

void Conversation::begin_anew() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(kept_), messages_.end());
}

}  // namespace gputrain::app
