#include "learned_text.hpp"

#include <utility>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::data, {.what = what, .where = {}, .hint = hint});
}

const Json* find(const Json& record, const std::string& column) {
  const auto found = record.find(column);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

const std::string& text_of(const Json& value, const std::string& column) {
  if (!value.is_string()) refuse("'" + column + "' is no text but " + std::string(value.type_name()));
  return value.get_ref<const std::string&>();
}

/// A list of messages, which tables have as JSON text.
Json list_of(const Json& value, const std::string& column) {
  if (!value.is_string()) return value;
  constexpr int kDeepest = 200;  // deeper values would take the stack of whoever walks through them
  bool is_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, const Json&) {
    is_deep = is_deep || depth > kDeepest;
    return !is_deep;
  };
  Json list = Json::parse(value.get_ref<const std::string&>(), look, /*allow_exceptions=*/false);
  if (is_deep || !list.is_array()) refuse("'" + column + "' is a text, and no list of messages as JSON");
  return list;
}

std::string columns_in(const Json& record) {
  std::string all;
  for (const auto& [name, value] : record.items()) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "none" : printable(all.substr(0, 200));
}

}  // namespace

std::vector<std::string> columns_of_texts(const data::TextOptions& options) {
  const data::ColumnNames& names = options.columns;
  return {names.text.value_or("text"),
          names.prompt.value_or("prompt"),
          names.completion.value_or("completion"),
          names.messages.value_or("messages"),
          "conversations",
          "instruction",
          "input",
          "output",
          "system",
          "tools",
          "documents"};
}

RecordTexts::RecordTexts(const data::TextOptions& options, const fs::path& tokenizer_folder) : options_(options) {
  try {
    template_ = chat::choose_chat_template(options.chat_template, tokenizer_folder);
  } catch (const Error& error) {
    if (options.chat_template) throw;
    no_template_ = error;
  }
}

LearnedText RecordTexts::of(const Json& record) const {
  const std::string text = options_.columns.text.value_or("text"), prompt = options_.columns.prompt.value_or("prompt");
  const std::string messages = options_.columns.messages.value_or("messages");
  if (find(record, messages) != nullptr || find(record, "conversations") != nullptr) return conversation_of(record);
  if (const Json* start = find(record, prompt))
    return start->is_array() ? conversation_of(record) : completion_of(record);
  if (const Json* whole = find(record, text)) {
    const std::string& content = text_of(*whole, text);
    return {.text = content, .learned = {{0, content.size()}}, .is_document = true};
  }
  if (find(record, "instruction") != nullptr) return conversation_of(record);
  refuse("no column to learn from; there are " + columns_in(record), kColumnsHint);
}

Json RecordTexts::messages_of(const Json& record) const {
  const std::string prompt = options_.columns.prompt.value_or("prompt"),
                    completion = options_.columns.completion.value_or("completion"),
                    messages = options_.columns.messages.value_or("messages");
  if (const Json* all = find(record, messages)) return chat::messages_of({{"messages", list_of(*all, messages)}});
  if (const Json* turns = find(record, "conversations"); turns != nullptr && turns->is_string()) {
    Json parsed = record;
    parsed["conversations"] = list_of(*turns, "conversations");
    return chat::messages_of(parsed);
  }
  const Json *start = find(record, prompt), *answer = find(record, completion);
  if (start == nullptr) return chat::messages_of(record);
  if (answer == nullptr || !answer->is_array())
    refuse("'" + prompt + "' is a conversation, but '" + completion + "' is not");
  Json joined = *start;
  for (const Json& message : *answer) joined.push_back(message);
  return chat::messages_of({{"messages", joined}});
}

LearnedText RecordTexts::completion_of(const Json& record) const {
  const std::string prompt = options_.columns.prompt.value_or("prompt"),
                    completion = options_.columns.completion.value_or("completion");
  const Json* answer = find(record, completion);
  if (answer == nullptr) refuse("a '" + prompt + "' without a '" + completion + "'", "data.text.columns.completion");
  const std::string& start = text_of(*find(record, prompt), prompt);
  const std::string whole = start + text_of(*answer, completion);
  return {.text = whole, .learned = {{learns_all() ? 0 : start.size(), whole.size()}}};
}

chat::LearnedText RecordTexts::rendered(const Json& messages, const Json& record) const {
  if (!template_) {
    throw Error(ExitCode::usage, {.what = "the data has conversations, but " + no_template_->parts().what,
                                  .where = no_template_->parts().where,
                                  .hint = "data.text.chat_template: chatml, or a file with the model's template"});
  }
  Json variables = Json::object();
  for (const char* name : {"tools", "documents"})
    if (const Json* given = find(record, name)) variables[name] = *given;
  return chat::learned_text(*template_, messages, variables);
}

LearnedText RecordTexts::conversation_of(const Json& record) const {
  chat::LearnedText whole = rendered(messages_of(record), record);
  LearnedText text{.text = std::move(whole.text), .learned = {}, .is_plain = false};
  if (learns_all()) {
    text.learned = {{0, text.text.size()}};
    return text;
  }
  for (const auto& range : whole.learned) text.learned.push_back({range.begin, range.end});
  if (options_.loss_on == "completion" && text.learned.size() > 1) text.learned = {text.learned.back()};
  return text;
}

LearnedText RecordTexts::answered(const Dialogue& dialogue, const Json& record) const {
  const auto& [prompt, answer] = dialogue;
  if (!prompt.is_array()) {
    const auto& start = prompt.get_ref<const std::string&>();
    const std::string whole = start + answer.get_ref<const std::string&>();
    return {.text = whole, .learned = {{start.size(), whole.size()}}};
  }
  Json messages = prompt;
  size_t said = 0;  // how many messages of the answer are the assistant's
  for (const Json& message : answer) {
    messages.push_back(message);
    if (message.is_object() && message.value("role", Json()) == "assistant") ++said;
  }
  chat::LearnedText whole = rendered(messages, record);
  if (said == 0 || whole.learned.size() < said) refuse("an answer has no message of the assistant");
  LearnedText text{.text = std::move(whole.text), .learned = {}, .is_plain = false};
  for (size_t i = whole.learned.size() - said; i < whole.learned.size(); ++i)
    text.learned.push_back({whole.learned[i].begin, whole.learned[i].end});
  return text;
}

}  // namespace gputrain::records
