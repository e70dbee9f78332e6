#include "unwritten.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "jinja/values/text.hpp"
#include "marks.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

bool has_calls(const ordered_json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

/// Returns the name of the function that a call calls; null if it has none.
ordered_json* name_in(ordered_json& call) {
  if (!call.is_object()) return nullptr;
  ordered_json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
  const auto name = function.find("name");
  return name != function.end() && name->is_string() ? &*name : nullptr;
}

std::string written_at(const Rendered& rendered, size_t message) {
  std::string text;
  for (const Written& written : rendered.written)
    if (written.message == message) text += part(rendered.text, written.range);
  return text;
}

/// Returns whether the message's only call is written for certain: its turn has the name, which its other keys do not
/// have.
bool is_clearly_written(const Given& given, size_t index) {
  ordered_json rest = given.messages[index];
  ordered_json calls = std::exchange(rest["tool_calls"], nullptr);
  const ordered_json* name = name_in(calls[0]);
  if (calls.size() != 1 || name == nullptr) return false;
  const auto& text = name->get_ref<const std::string&>();
  return rest.dump(-1, ' ', false, ordered_json::error_handler_t::replace).find(text) == std::string::npos &&
         written_at(given.rendered, index).find(text) != std::string::npos;
}

struct ToolCall {
  size_t message;
  std::string name, other_name;  // the other one stands nowhere else
};

bool is_written(const Given& given, size_t message) {
  if (!is_blank(written_at(given.rendered, message))) return true;
  const std::vector<std::string_view> words = words_of(given.messages[message]);
  return words.empty() || std::ranges::any_of(words, [&](std::string_view text) {
           return given.rendered.text.find(text) != std::string::npos;
         });
}

/// Returns whether the first tool is written. A template that raises counts as one that writes.
bool writes_tools(const Given& given) {
  ordered_json variables = given.variables;
  ordered_json* name = name_in(variables["tools"].front());
  if (name == nullptr) return true;
  *name = other_words(0);
  try {
    return given.chat_template.render(given.messages, false, variables).text.find(other_words(0)) != std::string::npos;
  } catch (const Error&) {
    return true;
  }
}

/// Returns another value of a message's key; null: none.
ordered_json other_value(const ordered_json& value, bool is_missing) {
  if (is_missing) return nullptr;
  if (value.is_boolean()) return !value.get<bool>();
  return other_words(0);
}

}  // namespace

bool reads_key(const ChatTemplate& chat_template, const ordered_json& messages, const ordered_json& variables,
               const std::string& role, const std::string& key) {
  try {
    const std::string text = chat_template.render(messages, false, variables).text;
    for (const bool is_missing : {true, false}) {
      ordered_json others = messages;
      for (ordered_json& message : others)
        if (message.at("role") == role && message.contains(key)) message[key] = other_value(message[key], is_missing);
      if (chat_template.render(others, false, variables).text != text) return true;
    }
    return false;
  } catch (const Error&) {
    return true;  // it checks the value
  }
}

std::vector<std::string_view> words_of(const ordered_json& message) {
  std::vector<std::string_view> words;
  const auto add = [&](const ordered_json& text) {
    if (!text.is_string()) return;
    const std::string_view stripped_text = stripped(text.get_ref<const std::string&>(), Side::both);
    if (!stripped_text.empty()) words.push_back(stripped_text);
  };
  const auto content = message.find("content");
  if (content == message.end()) return words;
  if (!content->is_array()) add(*content);
  if (content->is_array())
    for (const ordered_json& one : *content) add(one.at("text"));
  return words;
}

void tell_lost_messages(const Given& given, const std::vector<std::string>& roles) {
  for (size_t i = 0; i < given.messages.size(); ++i)
    if (!is_written(given, i))
      given.habits.warn_once("the chat template does not write messages of the role '" +
                             printable(roles[i].substr(0, 40)) + "': the model does not see what they say");
}

void tell_lost_variables(const Given& given) {
  for (const auto& [name, value] : given.variables.items()) {
    const bool is_nothing = value.is_null() || (value.is_structured() && value.empty());
    if (is_nothing) continue;
    if (!given.habits.reads_variable(name)) {
      given.habits.warn_once("the chat template does not read '" + printable(name.substr(0, 80)) +
                             "', which chat_template_kwargs or the records have");
    } else if (name == "tools" && value.is_array() && given.habits.is_first("tools") && !writes_tools(given)) {
      given.habits.warn_once("records have tools, which the chat template does not write");
    }
  }
}

void check_calls(const Given& given) {
  ordered_json renamed = given.messages;
  std::vector<ToolCall> calls;
  for (size_t i = 0; i < renamed.size(); ++i) {
    if (!has_calls(renamed[i]) || is_clearly_written(given, i)) continue;
    for (ordered_json& call : renamed[i]["tool_calls"]) {
      ordered_json* name = name_in(call);
      if (name == nullptr) continue;
      calls.push_back({i, name->get<std::string>(), other_words(calls.size())});
      *name = calls.back().other_name;
    }
  }
  if (calls.empty()) return;
  std::optional<Rendered> rendered;
  try {
    rendered = given.chat_template.render(renamed, false, given.variables);
  } catch (const Error&) {
    return;  // it reads the names
  }
  for (const ToolCall& call : calls)
    if (rendered->text.find(call.other_name) == std::string::npos)
      throw Error(ExitCode::data,
                  {.what = "this chat template does not write message " + std::to_string(call.message + 1) +
                           "'s call of '" + printable(call.name.substr(0, 80)) + "'",
                   .where = given.chat_template.source().name(),
                   .hint = "choose a template that has a form for calls of tools by data.text.chat_template; some "
                           "write them only beside a content that is null"});
}

}  // namespace gputrain::chat
