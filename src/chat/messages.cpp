#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/printable.hpp"
#include "jinja/values/text.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

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

/// Checks that `weight` is 0 or 1, and `train` true or false.
void check_wish(size_t index, const ordered_json& message) {
  const auto weight = message.find("weight"), train = message.find("train");
  if (weight != message.end() && !weight->is_null() && *weight != 0 && *weight != 1)
    refuse_message(index, "has a 'weight' that is neither 0 nor 1");
  if (train != message.end() && !train->is_null() && !train->is_boolean())
    refuse_message(index, "has a 'train' that is neither true nor false");
  if (message.contains("train_detail") && !message.at("train_detail").is_null())
    refuse_message(index, "has a 'train_detail': parts of a message cannot be learned alone");
}

std::string string_at(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string())
    throw Error(ExitCode::data, {.what = "'" + std::string(key) + "' of a record is not a string"});
  return found->get<std::string>();
}

ordered_json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

bool is_usual_role(const std::string& role) {
  constexpr std::array kUsual{"user", "assistant", "system", "tool", "developer", "function_call", "tool_call"};
  return std::ranges::find(kUsual, role) != kUsual.end();
}

/// Returns the role that a name means, as templates know it; the name itself if it is none of the usual ones.
std::string role_called(const std::string& name) {
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"human", "user"},         {"prompter", "user"},          {"gpt", "assistant"},    {"chatgpt", "assistant"},
      {"model", "assistant"},    {"bot", "assistant"},          {"ai", "assistant"},     {"chatbot", "assistant"},
      {"bing", "assistant"},     {"bard", "assistant"},         {"observation", "tool"}, {"function", "tool"},
      {"tool_response", "tool"}, {"function_response", "tool"}, {"tool_result", "tool"}};
  const std::string lower = lower_cased(name);
  for (const auto& [alias, role] : kRoles)
    if (lower == alias) return role;
  return is_usual_role(lower) ? lower : name;
}

/// Reads calls of tools from JSON text; null if it is no such text.
ordered_json calls_in(const std::string& text) {
  ordered_json calls = parse_json<ordered_json>(text);
  if (calls.is_object()) calls = ordered_json::array({calls});
  if (!calls.is_array() || calls.empty()) return nullptr;
  for (ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("name")) return nullptr;
    call = {{"type", "function"}, {"function", call}};
  }
  return calls;
}

/// Rewrites one message with the keys and the role that templates know. ShareGPT's have `from` and `value`.
ordered_json usual(const ordered_json& given, size_t index) {
  if (!given.is_object()) refuse_message(index, "is no object with 'role' and 'content'");
  ordered_json result = ordered_json::object();
  for (const auto& [key, value] : given.items()) {
    if (key == "tool_calls" && value.empty()) continue;  // null, or no calls
    const bool renames = (key == "from" && !given.contains("role")) || (key == "value" && !given.contains("content"));
    result[renames ? (key == "from" ? "role" : "content") : key] = value;
  }
  const auto role = result.find("role");
  if (role == result.end() || !role->is_string()) refuse_message(index, "has no 'role' (or 'from') that is a string");
  const std::string name = role->get<std::string>(), meant = role_called(name);
  if (given.contains("from") && !given.contains("role") && !is_usual_role(meant))
    refuse_message(index, "is from '" + printable(name.substr(0, 40)) + "', not from human, gpt, system or tool");
  *role = meant;
  if (*role != "function_call" && *role != "tool_call") return result;
  *role = "assistant";
  const auto content = result.find("content");
  const ordered_json calls = content != result.end() && content->is_string() ? calls_in(*content) : ordered_json();
  if (calls.is_null()) return result;
  result["content"] = "";
  result["tool_calls"] = calls;
  return result;
}

/// Reads a list, or the text of one, as tables have it.
ordered_json list_in(const ordered_json& value) {
  if (!value.is_string()) return value;
  ordered_json parsed = parse_json<ordered_json>(value.get_ref<const std::string&>());
  if (!parsed.is_array())
    throw Error(ExitCode::data, {.what = "a conversation is a text that is no JSON list of messages"});
  return parsed;
}

void add_system(ordered_json& messages, const ordered_json& record) {
  const std::string system = string_at(record, "system");
  if (!system.empty()) messages.push_back(message("system", system));
}

ordered_json from_alpaca(const ordered_json& record, const char* output) {
  ordered_json messages = alpaca_prompt(record);
  messages.push_back(message("assistant", string_at(record, output)));
  return messages;
}

}  // namespace

void check_messages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty())
    throw Error(ExitCode::data, {.what = "a conversation is a list of messages, and not empty"});
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& one = messages[i];
    if (!one.is_object()) refuse_message(i, "is no object with 'role' and 'content'");
    if (!one.contains("role") || !one.at("role").is_string()) refuse_message(i, "has no 'role' that is a string");
    check_wish(i, one);
    if (one.contains("tool_calls") && !one.at("tool_calls").is_null() && !one.at("tool_calls").is_array())
      refuse_message(i, "has 'tool_calls' that are no list");
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

ordered_json usual_messages(const ordered_json& given) {
  const ordered_json list = list_in(given);
  if (!list.is_array() || list.empty())
    throw Error(ExitCode::data, {.what = "a conversation is a list of messages, and not empty"});
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < list.size(); ++i) messages.push_back(usual(list[i], i));
  check_messages(messages);
  return messages;
}

ordered_json alpaca_prompt(const ordered_json& record) {
  ordered_json messages = ordered_json::array();
  add_system(messages, record);
  const auto history = record.find("history");
  if (history != record.end() && !history->is_null() && *history != "") {
    for (const ordered_json& round : list_in(*history)) {
      if (!round.is_array() || round.size() != 2 || !round[0].is_string() || !round[1].is_string())
        throw Error(ExitCode::data, {.what = "'history' of a record is no list of [question, answer]"});
      messages.push_back(message("user", round[0]));
      messages.push_back(message("assistant", round[1]));
    }
  }
  std::string instruction = string_at(record, "instruction"), input;
  if (instruction.empty()) instruction = string_at(record, "question");
  for (const char* more : {"input", "context"})
    if (const std::string text = string_at(record, more); !text.empty()) input += (input.empty() ? "" : "\n") + text;
  messages.push_back(message("user", input.empty() ? instruction : instruction + "\n" + input));
  if (!input.empty()) messages.back()["alpaca"] = {{"instruction", instruction}, {"input", input}};
  return messages;
}

ordered_json messages_of(const ordered_json& record) {
  const auto has = [&](const char* key) {
    return record.is_object() && record.contains(key) && !record.at(key).is_null();
  };
  for (const char* key : {"messages", "conversations"}) {
    if (!has(key)) continue;
    const ordered_json said = usual_messages(record.at(key));
    ordered_json messages = ordered_json::array();
    if (said[0].at("role") != "system") add_system(messages, record);
    for (const ordered_json& one : said) messages.push_back(one);
    return messages;
  }
  for (const char* output : {"output", "response"})
    if (has("instruction") && has(output)) return from_alpaca(record, output);
  throw Error(
      ExitCode::data,
      {.what = "a record has none of 'messages', 'conversations', or 'instruction' with 'output' or 'response'"});
}

}  // namespace gputrain::chat
