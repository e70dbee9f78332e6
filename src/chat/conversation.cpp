#include "gputrain/chat/conversation.hpp"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "jinja/values/text.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

constexpr const char* kUnclearHint =
    "use a template with {% generation %} around what the assistant says, or a built-in one";

[[noreturn]] void refuse(const ChatTemplate& chat_template, const std::string& why) {
  throw Error(ExitCode::data, {.what = "this chat template does not tell what the assistant says: " + why,
                               .where = chat_template.source().name(),
                               .hint = kUnclearHint});
}

bool is_assistant(const ordered_json& message) { return message.at("role") == "assistant"; }

/// The text of a message, without white space around; empty if it is not one string.
std::string content_of(const ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string()) return {};
  return std::string(stripped(content->get_ref<const std::string&>(), Side::both));
}

/// Refuses if what the template puts before the content may be a header, or if it puts nothing behind it.
void check_turn(const ChatTemplate& chat_template, const ordered_json& message, std::string_view turn,
                bool has_prompt) {
  const std::string content = content_of(message);
  if (content.empty() || message.contains("tool_calls")) return;
  const size_t begin = turn.find(content), last = turn.rfind(content);
  if (begin == std::string_view::npos) return;
  if (!has_prompt && !stripped(turn.substr(0, begin), Side::both).empty())
    refuse(chat_template, "add_generation_prompt changes nothing");
  if (last + content.size() == turn.size())
    refuse(chat_template, "nothing ends a turn, so a model would not learn to stop");
}

/// How much of `rest`, which follows the prompt in the whole text, is `turn`: all of it, or what was said and what ends
/// it, without thoughts that the template shows in the last turn alone. 0 if neither.
size_t turn_bytes(const ordered_json& message, std::string_view turn, std::string_view rest) {
  if (rest.starts_with(turn)) return turn.size();
  const std::string content = content_of(message);
  const size_t begin = turn.rfind(content);
  if (content.empty() || message.contains("tool_calls") || begin == std::string_view::npos) return 0;
  const std::string_view without_thoughts = turn.substr(begin);
  return rest.starts_with(without_thoughts) ? without_thoughts.size() : 0;
}

/// Renders with each message of the assistant and with the prompt for it: what is more was said by the assistant.
LearnedText by_difference(const ChatTemplate& chat_template, const ordered_json& messages,
                          const ordered_json& variables) {
  const auto render = [&](const ordered_json& some, bool with_prompt) {
    return chat_template.render(some, with_prompt, variables).text;
  };
  LearnedText result{render(messages, false), {}};
  ordered_json before = ordered_json::array();
  std::optional<bool> has_prompt;  // whether the template puts a header there
  for (size_t i = 0; i < messages.size(); before.push_back(messages[i]), ++i) {
    if (!is_assistant(messages[i])) continue;
    const std::string prompt = render(before, true);
    if (!has_prompt) has_prompt = prompt != render(before, false);
    ordered_json with_turn = before;
    with_turn.push_back(messages[i]);
    const std::string until_turn = render(with_turn, false);
    const bool follows_prompt = until_turn.starts_with(prompt) && result.text.starts_with(prompt);
    const std::string_view turn = follows_prompt ? std::string_view(until_turn).substr(prompt.size()) : "";
    const size_t bytes =
        follows_prompt ? turn_bytes(messages[i], turn, std::string_view(result.text).substr(prompt.size())) : 0;
    if (bytes == 0)
      refuse(chat_template, "message " + std::to_string(i + 1) + " looks different when others follow or precede it");
    check_turn(chat_template, messages[i], turn, *has_prompt);
    result.learned.push_back({prompt.size(), prompt.size() + bytes});
  }
  return result;
}

LearnedText by_marks(const ChatTemplate& chat_template, const ordered_json& messages, const ordered_json& variables) {
  Rendered rendered = chat_template.render(messages, false, variables);
  LearnedText result{std::move(rendered.text), {}};
  for (const Range& range : rendered.generated)
    if (range.begin < range.end) result.learned.push_back(range);
  for (const ordered_json& message : messages)
    if (is_assistant(message) && !content_of(message).empty() && result.learned.empty())
      refuse(chat_template, "its {% generation %} blocks are empty");
  return result;
}

[[noreturn]] void refuse_message(size_t index, const std::string& why) {
  throw Error(ExitCode::data, {.what = "message " + std::to_string(index + 1) + " of a conversation " + why});
}

void check_parts(size_t index, const ordered_json& parts) {
  for (const ordered_json& part : parts) {
    const bool is_text = part.is_object() && part.value("type", ordered_json()) == "text" && part.contains("text") &&
                         part.at("text").is_string();
    if (!is_text) refuse_message(index, "has a part that is no {\"type\": \"text\", \"text\": ...}");
  }
}

std::string string_at(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string())
    throw Error(ExitCode::data, {.what = "'" + std::string(key) + "' of a record is not a string"});
  return found->get<std::string>();
}

ordered_json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

ordered_json from_sharegpt(const ordered_json& record) {
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"human", "user"},        {"user", "user"},     {"gpt", "assistant"}, {"assistant", "assistant"},
      {"chatgpt", "assistant"}, {"system", "system"}, {"tool", "tool"},     {"observation", "tool"}};
  ordered_json messages = ordered_json::array();
  if (const std::string system = string_at(record, "system"); !system.empty())
    messages.push_back(message("system", system));
  const ordered_json& turns = record.at("conversations");
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns.is_array() || !turns[i].is_object()) refuse_message(i, "is no object with 'from' and 'value'");
    const std::string from = string_at(turns[i], "from");
    const char* role = nullptr;
    for (const auto& [name, meant] : kRoles)
      if (from == name) role = meant;
    if (role == nullptr)
      refuse_message(i, "is from '" + printable(from.substr(0, 40)) + "', not from human, gpt, system or tool");
    messages.push_back(message(role, string_at(turns[i], "value")));
  }
  return messages;
}

ordered_json from_alpaca(const ordered_json& record) {
  ordered_json messages = ordered_json::array();
  if (const std::string system = string_at(record, "system"); !system.empty())
    messages.push_back(message("system", system));
  const std::string instruction = string_at(record, "instruction"), input = string_at(record, "input");
  messages.push_back(message("user", input.empty() ? instruction : instruction + "\n" + input));
  messages.push_back(message("assistant", string_at(record, "output")));
  return messages;
}

}  // namespace

LearnedText learned_text(const ChatTemplate& chat_template, const ordered_json& messages,
                         const ordered_json& variables) {
  check_messages(messages);
  return chat_template.source().marks_generated() ? by_marks(chat_template, messages, variables)
                                                  : by_difference(chat_template, messages, variables);
}

void check_messages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty())
    throw Error(ExitCode::data, {.what = "a conversation is a list of messages, and not empty"});
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& one = messages[i];
    if (!one.is_object()) refuse_message(i, "is no object with 'role' and 'content'");
    if (!one.contains("role") || !one.at("role").is_string()) refuse_message(i, "has no 'role' that is a string");
    const bool has_content = one.contains("content") && !one.at("content").is_null();
    if (!has_content && one.contains("tool_calls") && one.at("tool_calls").is_array()) continue;
    if (!has_content) refuse_message(i, "has neither 'content' nor 'tool_calls'");
    if (one.at("content").is_array()) {
      check_parts(i, one.at("content"));
    } else if (!one.at("content").is_string()) {
      refuse_message(i, "has a 'content' that is neither a string nor a list of parts");
    }
  }
}

ordered_json messages_of(const ordered_json& record) {
  if (record.is_object() && record.contains("messages")) {
    check_messages(record.at("messages"));
    return record.at("messages");
  }
  if (record.is_object() && record.contains("conversations")) {
    ordered_json messages = from_sharegpt(record);
    check_messages(messages);
    return messages;
  }
  if (record.is_object() && record.contains("instruction") && record.contains("output")) return from_alpaca(record);
  throw Error(ExitCode::data,
              {.what = "a record has none of 'messages', 'conversations', or 'instruction' with 'output'"});
}

}  // namespace gputrain::chat
