#include "answers.hpp"

#include <algorithm>
#include <utility>

#include "../label_text.hpp"
#include "../labels.hpp"
#include "../tokens/learned_text.hpp"
#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::records {
namespace {

using AnswerJson = nlohmann::ordered_json;

[[noreturn]] void refuse_answer(const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::data, {.what = what, .where = {}, .hint = hint});
}

const AnswerJson* column_of(const AnswerJson& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

/// Returns a list of the one message that axolotl's and LLaMA-Factory's data have as an answer; else the value.
AnswerJson in_list(const AnswerJson& value) {
  if (!value.is_object()) return value;
  AnswerJson list = AnswerJson::array();
  list.push_back(value);
  return list;
}

/// Returns a text, or a list of messages with the keys and roles that templates know. A cell of a table has a list as
/// JSON text.
AnswerJson answer_in(const AnswerJson& record, const std::string& name) {
  const AnswerJson* found = column_of(record, name);
  if (found == nullptr) refuse_answer("no '" + name + "'", kAnswersHint);
  const AnswerJson list = messages_in_text(*found, name);
  const AnswerJson value = in_list(list.is_null() ? *found : list);
  if (!value.is_string() && !value.is_array()) refuse_answer("'" + name + "' is neither a text nor a list of messages");
  if (value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty())
    refuse_answer("'" + name + "' is empty");
  return value.is_array() ? chat::usual_messages(value) : value;
}

/// Returns whether a list of messages begins with the assistant's, not with a prompt.
bool begins_with_answer(const AnswerJson& messages) { return messages.front().at("role") == "assistant"; }

/// Returns the same for a value that need not be a list of messages.
bool may_begin_with_answer(const AnswerJson& value) {
  try {
    return begins_with_answer(chat::usual_messages(in_list(value)));
  } catch (const Error&) {
    return false;
  }
}

/// Returns a prompt in the form of the answer: before messages of the assistant, a text becomes the user's message.
AnswerJson prompt_for(const AnswerJson& prompt, const AnswerJson& answer) {
  const bool is_said = prompt.is_string() && answer.is_array() && begins_with_answer(answer);
  return is_said ? AnswerJson::array({{{"role", "user"}, {"content", prompt}}}) : prompt;
}

/// Returns whether a record has a prompt in Alpaca's columns, or in one called "question".
bool asks(const AnswerJson& record) {
  return column_of(record, "instruction") != nullptr || column_of(record, "question") != nullptr;
}

/// Puts the content of the column "system" before the prompt.
AnswerJson with_system(const AnswerJson& prompt, const AnswerJson& record) {
  const AnswerJson* system = column_of(record, "system");
  if (system == nullptr || *system == "") return prompt;
  if (!system->is_string()) refuse_answer("'system' is no text");
  if (prompt.is_array() && !prompt.empty() && prompt.front().is_object() &&
      prompt.front().value("role", AnswerJson()) == "system")
    return prompt;
  AnswerJson messages = AnswerJson::array({{{"role", "system"}, {"content", *system}}});
  if (prompt.is_array()) {
    for (const AnswerJson& message : prompt) messages.push_back(message);
  } else {
    messages.push_back({{"role", "user"}, {"content", prompt}});
  }
  return messages;
}

/// Returns the column of prompts, or the conversation that Alpaca's columns or "question" make.
AnswerJson prompt_in(const AnswerJson& record, const data::ColumnNames& names, const AnswerJson& answer) {
  const std::string column = names.prompt.value_or("prompt");
  if (column_of(record, column) == nullptr && asks(record)) return chat::alpaca_prompt(record);
  return with_system(prompt_for(answer_in(record, column), answer), record);
}

/// Turns a text that follows a list of messages into the assistant's message.
AnswerJson as_in(const AnswerJson& prompt, const AnswerJson& answer) {
  if (!prompt.is_array() || !answer.is_string()) return answer;
  return AnswerJson::array({{{"role", "assistant"}, {"content", answer}}});
}

/// Splits off the messages, or the text, with which both begin. Texts are split before the space in front of the
/// difference: tokens often begin with one.
Preference divided(const AnswerJson& chosen, const AnswerJson& rejected) {
  if (chosen.is_array() != rejected.is_array()) refuse_answer("one answer is a text, the other a list of messages");
  if (!chosen.is_array()) {
    const auto &good = chosen.get_ref<const std::string&>(), &bad = rejected.get_ref<const std::string&>();
    size_t shared = static_cast<size_t>(std::ranges::mismatch(good, bad).in1 - good.begin());
    while (shared > 0 && shared < good.size() && (static_cast<unsigned char>(good[shared]) & 0xC0) == 0x80) --shared;
    if (shared > 0 && good[shared - 1] == ' ') --shared;
    if (shared == good.size() || shared == bad.size()) refuse_answer("one answer is the begin of the other");
    const std::string prompt = good.substr(0, shared);
    return {{prompt, good.substr(shared)}, {prompt, bad.substr(shared)}};
  }
  const auto shared = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
  if (shared == std::ssize(chosen) || shared == std::ssize(rejected))
    refuse_answer("one answer is the begin of the other");
  const auto part = [](const AnswerJson& messages, std::ptrdiff_t begin, std::ptrdiff_t end) {
    AnswerJson some = AnswerJson::array();
    for (auto at = begin; at < end; ++at) some.push_back(messages[static_cast<size_t>(at)]);
    return some;
  };
  const AnswerJson prompt = part(chosen, 0, shared);
  return {{prompt, part(chosen, shared, std::ssize(chosen))}, {prompt, part(rejected, shared, std::ssize(rejected))}};
}

/// Refuses a prompt, a text, that is none of the user's messages at the begin of both answers.
void check_is_repeated(const AnswerJson& prompt, const AnswerJson& shared) {
  const auto is_prompt = [&](const AnswerJson& message) {
    return message.at("role") == "user" && message.contains("content") && message.at("content") == prompt;
  };
  if (prompt != "" && std::ranges::none_of(shared, is_prompt))
    refuse_answer("the answers begin with a prompt of their own, and it is not that of the column of prompts",
                  "leave the column out by data.text.columns: {prompt: another name}, or begin the answers with what "
                  "the assistant says");
}

/// Reads true and false, 1 and 0, or such words.
bool is_good_in(const AnswerJson& label) {
  if (label.is_boolean()) return label.get<bool>();
  if (label.is_number() && (label == 0 || label == 1)) return label == 1;
  if (label.is_string())
    if (const auto flag = flag_in(label.get_ref<const std::string&>())) return *flag;
  refuse_answer("the label " + shown(label) + " is neither true nor false");
}

}  // namespace

std::vector<std::string> columns_of_answers(const data::ColumnNames& names) {
  return {names.prompt.value_or("prompt"),
          names.chosen.value_or("chosen"),
          names.rejected.value_or("rejected"),
          names.completion.value_or("completion"),
          names.one_label().value_or("label"),
          "system",
          "question",
          "instruction",
          "input",
          "context",
          "history",
          "tools",
          "documents",
          "chat_template_kwargs"};
}

std::vector<std::string> columns_of_prompt(const AnswerJson& record, const data::ColumnNames& names) {
  const std::string column = names.prompt.value_or("prompt");
  const AnswerJson *prompt = column_of(record, column), *chosen = column_of(record, names.chosen.value_or("chosen"));
  const bool is_list = chosen != nullptr && chosen->is_array() && !chosen->empty();
  const bool has_prompt = prompt != nullptr || (is_list && !may_begin_with_answer(*chosen));
  const bool is_asked = !has_prompt && asks(record);
  std::vector<std::string> read{column};
  if (reads_system(record, prompt != nullptr ? prompt : is_list ? chosen : nullptr)) read.emplace_back("system");
  if (is_asked) read.insert(read.end(), {"instruction", "input", "context", "history"});
  if (is_asked && column_of(record, "instruction") == nullptr) read.emplace_back("question");
  const bool is_conversation =
      is_asked || is_list || column_of(record, "system") != nullptr || (prompt != nullptr && prompt->is_array());
  if (is_conversation) read.insert(read.end(), {"tools", "documents", "chat_template_kwargs"});
  return read;
}

Preference preference_in(const AnswerJson& record, const data::ColumnNames& names) {
  const AnswerJson chosen = answer_in(record, names.chosen.value_or("chosen")),
                   rejected = answer_in(record, names.rejected.value_or("rejected"));
  const AnswerJson* prompt = column_of(record, names.prompt.value_or("prompt"));
  // Some data repeat the prompt, a text, as the first message of both answers.
  const bool is_repeated =
      chosen.is_array() && !begins_with_answer(chosen) && (prompt == nullptr || prompt->is_string());
  if (is_repeated || (prompt == nullptr && !asks(record))) {
    Preference both = divided(chosen, rejected);
    if (prompt != nullptr) check_is_repeated(*prompt, both.chosen.prompt);
    const AnswerJson start = with_system(both.chosen.prompt, record);
    return {{start, as_in(start, both.chosen.answer)}, {start, as_in(start, both.rejected.answer)}};
  }
  const AnswerJson start = prompt_in(record, names, chosen);
  Preference preference{{start, as_in(start, chosen)}, {start, as_in(start, rejected)}};
  for (const Dialogue* each : {&preference.chosen, &preference.rejected})
    if (each->answer.is_array() != start.is_array()) refuse_answer("the prompt is a text, but an answer is not");
  return preference;
}

std::vector<Rating> ratings_in(const AnswerJson& record, const data::ColumnNames& names) {
  if (column_of(record, names.completion.value_or("completion")) == nullptr) {
    Preference both = preference_in(record, names);
    return {{std::move(both.chosen), true}, {std::move(both.rejected), false}};
  }
  const AnswerJson answer = answer_in(record, names.completion.value_or("completion"));
  const AnswerJson start = prompt_in(record, names, answer);
  const AnswerJson* label = column_of(record, names.one_label().value_or("label"));
  if (label == nullptr) refuse_answer("a completion without a label", kAnswersHint);
  AnswerJson whole = as_in(start, answer);
  if (whole.is_array() != start.is_array()) refuse_answer("the prompt is a text, but the completion is not");
  return {{{start, std::move(whole)}, is_good_in(*label)}};
}

}  // namespace gputrain::records
