#include "learned_text.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
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

/// Returns a column that a record has. Tables have an empty cell where a record has no value.
const Json* find_filled(const Json& record, const std::string& column) {
  const Json* value = find(record, column);
  return value == nullptr || *value == "" || (value->is_structured() && value->empty()) ? nullptr : value;
}

const std::string& text_of(const Json& value, const std::string& column) {
  if (!value.is_string()) refuse("'" + column + "' is no text but " + std::string(value.type_name()));
  return value.get_ref<const std::string&>();
}

/// Parses an object, or a list, from JSON or from its text in a table.
Json json_in(const Json& value, const std::string& name, bool is_object) {
  Json parsed = value.is_string() ? parse_json<Json>(value.get_ref<const std::string&>()) : value;
  if (!is_object && parsed.is_object()) parsed = Json::array({parsed});
  if (is_object ? !parsed.is_object() : !parsed.is_array())
    refuse("'" + name + "' is neither " + (is_object ? "an object" : "a list") + " nor the JSON text of one");
  return parsed;
}

/// Reads descriptions of tools. A list may have each as JSON text.
Json tools_in(const Json& value) {
  Json tools = json_in(value, "tools", false);
  for (Json& tool : tools)
    if (tool.is_string()) tool = json_in(tool, "tools", true);
  return tools;
}

/// Returns the role of messages that one of data.text.roles_to_train means: human is the user.
std::string role_meant(const std::string& name) {
  const Json message = chat::usual_messages(Json::array({{{"role", name}, {"content", ""}}}))[0];
  const std::string role = message.at("role");
  if (role == "assistant" && name.ends_with("_call"))
    throw Error(ExitCode::usage, {.what = "'" + printable(name) + "' is no role of its own: calls are the assistant's",
                                  .where = "data.text.roles_to_train",
                                  .hint = "assistant"});
  return role;
}

chat::Learning learning_of(const data::TextOptions& options) {
  using Ends = chat::Learning::Ends;
  chat::Learning learning;
  if (options.roles_to_train) {
    learning.roles = *options.roles_to_train;
    std::ranges::transform(learning.roles, learning.roles.begin(), role_meant);
  }
  constexpr std::pair<const char*, Ends> kEnds[] = {
      {"turn", Ends::of_turns}, {"last", Ends::last}, {"all", Ends::all}, {"none", Ends::none}};
  for (const auto& [name, ends] : kEnds)
    if (options.train_on_eos == name) learning.ends = ends;
  return learning;
}

bool is_unwanted(const Json& message) {
  const auto weight = message.find("weight"), train = message.find("train");
  return (weight != message.end() && *weight == 0) || (train != message.end() && *train == false);
}

/// Refuses choices of what is learned where everything is learned.
void check_learns_all(const data::TextOptions& options) {
  if (options.loss_on != "all") return;
  for (const auto& [is_set, key] : {std::pair(options.roles_to_train.has_value(), "data.text.roles_to_train"),
                                    std::pair(options.train_on_eos != "turn", "data.text.train_on_eos")})
    if (is_set)
      throw Error(ExitCode::usage, {.what = "data.text.loss_on is all, which learns every message",
                                    .where = key,
                                    .hint = "leave one of them out"});
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
          "context",
          "output",
          "response",
          "history",
          "system",
          "tools",
          "documents",
          "chat_template_kwargs"};
}

namespace {

/// Returns null if the text is no JSON list of messages.
Json messages_in_json(std::string_view text) {
  if (!text.starts_with('[')) return nullptr;
  Json list = parse_json<Json>(text);
  const auto is_message = [](const Json& one) {
    return one.is_object() && (one.contains("role") || one.contains("from"));
  };
  return list.is_array() && !list.empty() && std::ranges::all_of(list, is_message) ? list : Json();
}

std::string_view from_first_letter(const Json& value) {
  const std::string_view text = value.is_string() ? value.get_ref<const std::string&>() : std::string_view();
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

}  // namespace

bool is_list_of_messages(const Json& value) {
  return value.is_array() || !messages_in_json(from_first_letter(value)).is_null();
}

Json messages_in_text(const Json& value, const std::string& column) {
  const std::string_view text = from_first_letter(value);
  if (Json list = messages_in_json(text); !list.is_null() || !text.starts_with('[')) return list;
  const std::string_view start = text.substr(0, 40);
  for (const char* key : {"{'role'", "{'content'", "{'from'", "{'value'"})
    if (start.find(key) != start.npos)
      refuse("'" + column + "' is a list of messages as Python prints it, not as JSON",
             "write the column by json.dumps(), or the table as JSON lines");
  return nullptr;
}

bool reads_system(const Json& record, const Json* messages) {
  const Json* system = find_filled(record, "system");
  if (system == nullptr || messages == nullptr) return true;
  const Json list = messages->is_string() ? parse_json<Json>(messages->get_ref<const std::string&>()) : *messages;
  if (!list.is_array() || list.empty() || !list.front().is_object()) return true;
  const Json& first = list.front();
  const auto is_under = [&](const char* key, const Json& value) {
    const auto found = first.find(key);
    return found != first.end() && *found == value;
  };
  const bool is_system = is_under("role", "system") || is_under("from", "system");
  return !is_system || is_under("content", *system) || is_under("value", *system);
}

struct RecordTexts::Told {
  std::mutex mutex;
  std::set<std::string> keys, warnings, roles;
  bool marks = false;
  bool has_conversations = false;
};

RecordTexts::RecordTexts(const data::TextOptions& options, const fs::path& tokenizer_folder)
    : options_(options), told_(std::make_shared<Told>()) {
  check_learns_all(options);
  const Json variables = json_in(options.chat_template_kwargs ? Json(*options.chat_template_kwargs) : Json::object(),
                                 "data.text.chat_template_kwargs", true);
  const chat::Learning learning = learning_of(options);
  try {
    const auto make = [&](const chat::ChatTemplate& chat_template) {
      return chat::Conversations(chat_template, variables, learning);
    };
    conversations_ = make(chat::choose_chat_template(options.chat_template, tokenizer_folder));
    if (options.chat_template) return;
    if (const auto for_tools = chat::read_tool_template(tokenizer_folder)) with_tools_ = make(*for_tools);
  } catch (const Error& error) {
    if (options.chat_template) throw;
    no_template_ = error;
  }
}

LearnedText RecordTexts::of(const Json& record) const {
  const std::string text = options_.columns.text.value_or("text"), prompt = options_.columns.prompt.value_or("prompt");
  const std::string messages = options_.columns.messages.value_or("messages");
  if (find_filled(record, messages) != nullptr || find_filled(record, "conversations") != nullptr)
    return conversation_of(record);
  if (const Json* start = find(record, prompt))
    return start->is_array() || !messages_in_text(*start, prompt).is_null() ? conversation_of(record)
                                                                            : completion_of(record);
  if (const Json* whole = find(record, text)) {
    const std::string& content = text_of(*whole, text);
    return {.text = content, .learned = {{0, content.size()}}, .is_document = true};
  }
  if (find(record, "instruction") != nullptr || find(record, messages) != nullptr) return conversation_of(record);
  refuse("no column to learn from; there are " + columns_in(record), kColumnsHint);
}

Json RecordTexts::messages_of(const Json& record, size_t& asked) const {
  const std::string prompt = options_.columns.prompt.value_or("prompt"),
                    completion = options_.columns.completion.value_or("completion"),
                    messages = options_.columns.messages.value_or("messages");
  Json given = Json::object();
  if (const Json* system = find(record, "system")) given["system"] = *system;
  const Json *all = find_filled(record, messages), *turns = find_filled(record, "conversations");
  if (all != nullptr || turns != nullptr) {
    const std::string column = all != nullptr ? messages : "conversations";
    given["messages"] = json_in(all != nullptr ? *all : *turns, column, false);
    return chat::messages_of(given);
  }
  const Json *start = find_filled(record, prompt), *answer = find(record, completion);
  if (start == nullptr) return chat::messages_of(record);
  const Json said = answer == nullptr ? Json() : messages_in_text(*answer, completion);
  if (!said.is_null()) answer = &said;
  if (answer == nullptr || !answer->is_array())
    refuse("'" + prompt + "' is a conversation, but '" + completion + "' is not");
  const Json asked_in_text = messages_in_text(*start, prompt);
  given["messages"] = asked_in_text.is_null() ? *start : asked_in_text;
  asked = chat::messages_of(given).size();
  for (const Json& message : *answer) given["messages"].push_back(message);
  return chat::messages_of(given);
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
  if (!conversations_) {
    throw Error(ExitCode::usage,
                {.what = "the data has conversations, but " + no_template_->parts().what,
                 .where = no_template_->parts().where,
                 .hint = "data.text.chat_template: chatml, or a file with the model's template; conversations are "
                         "lists of messages, and records with instruction or question"});
  }
  Json variables = Json::object();
  if (const Json* given = find_filled(record, "chat_template_kwargs"))
    variables = json_in(*given, "chat_template_kwargs", true);
  if (const Json* given = find_filled(record, "tools")) variables["tools"] = tools_in(*given);
  if (const Json* given = find_filled(record, "documents"))
    variables["documents"] = json_in(*given, "documents", false);
  const bool has_tools = variables.contains("tools") && !variables["tools"].empty();
  const chat::Conversations& conversations = has_tools && with_tools_ ? *with_tools_ : *conversations_;
  chat::LearnedText text = conversations.learned(messages, variables);
  tell_unread(conversations, messages);
  return text;
}

/// Warns, once, of keys of messages that nobody reads.
void RecordTexts::tell_unread(const chat::Conversations& conversations, const Json& messages) const {
  std::vector<std::string> warnings;
  const std::lock_guard lock(told_->mutex);
  told_->has_conversations = true;
  for (const Json& message : messages) told_->roles.insert(message.at("role").get<std::string>());
  if (told_->roles.contains("developer")) told_->roles.insert("system");  // the template may take one for the other
  for (const std::string& key : conversations.unread_keys(messages))
    if (told_->keys.insert(key).second)
      warnings.push_back("messages have a key '" + printable(key) +
                         "', which neither the chat template nor gputrain reads");
  for (const std::string& warning : warnings) log::warning(warning);
}

bool RecordTexts::has_conversations() const {
  const std::lock_guard lock(told_->mutex);
  return told_->has_conversations;
}

void RecordTexts::check_marks(const tokenizers::Tokenizer& tokenizer) const {
  if (!conversations_) return;
  if (options_.chat_template && !has_conversations())
    tell_once(
        "data.text.chat_template writes none of the texts: there are no conversations, which are lists of messages");
  {
    const std::lock_guard lock(told_->mutex);
    if (!told_->has_conversations || std::exchange(told_->marks, true)) return;
    for (const std::string& role : options_.roles_to_train.value_or(std::vector<std::string>()))
      if (!told_->roles.contains(role_meant(role)))
        log::warning("no message has the role '" + printable(role) + "' of data.text.roles_to_train");
  }
  std::string split;
  for (const std::string& mark : conversations_->marks())
    if (tokenizer.encode(mark, "chat template").size() > 1) split += (split.empty() ? "" : ", ") + mark;
  if (!split.empty())
    log::warning("the chat template writes " + printable(split) +
                 ", which the tokenizer has not as one token: a model learns to spell them out; choose a template for "
                 "this tokenizer by data.text.chat_template");
}

LearnedText RecordTexts::conversation_of(const Json& record) const {
  size_t asked = 0;
  const Json messages = messages_of(record, asked);
  chat::LearnedText whole = rendered(messages, record);
  LearnedText text{.text = std::move(whole.text), .learned = {}, .is_plain = false};
  if (learns_all()) {
    text.learned = {{0, text.text.size()}};
    if (std::ranges::any_of(messages, is_unwanted))
      tell_once("data.text.loss_on: all learns every message, also those with weight 0 or train false");
    return text;
  }
  // Conversations without a column for the prompt have the last message as completion.
  size_t first = options_.loss_on == "assistant" ? 0 : asked;
  if (options_.loss_on == "completion" && asked == 0 && !whole.learned.empty()) first = whole.learned.back().message;
  for (const auto& [range, message] : whole.learned)
    if (message >= first) text.learned.push_back({range.begin, range.end});
  return text;
}

void RecordTexts::tell_once(const std::string& warning) const {
  const std::lock_guard lock(told_->mutex);
  if (told_->warnings.insert(warning).second) log::warning(warning);
}

LearnedText RecordTexts::answered(const Dialogue& dialogue, const Json& record) const {
  const auto& [prompt, answer] = dialogue;
  if (!prompt.is_array()) {
    const auto& start = prompt.get_ref<const std::string&>();
    const std::string whole = start + answer.get_ref<const std::string&>();
    return {.text = whole, .learned = {{start.size(), whole.size()}}};
  }
  Json messages = chat::usual_messages(prompt);
  const size_t asked = messages.size();
  for (const Json& message : chat::usual_messages(answer)) messages.push_back(message);
  chat::LearnedText whole = rendered(messages, record);
  LearnedText text{.text = std::move(whole.text), .learned = {}, .is_plain = false};
  for (const auto& [range, message] : whole.learned)
    if (message >= asked) text.learned.push_back({range.begin, range.end});
  if (text.learned.empty()) refuse("an answer has no message of the assistant");
  return text;
}

}  // namespace gputrain::records
