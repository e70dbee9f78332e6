#include "template_habits.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "jinja/syntax/parser.hpp"
#include "jinja/values/operators.hpp"
#include "jinja/values/text.hpp"
#include "jinja/values/value.hpp"
#include "marks.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

/// Finds `words` in a turn of the probe; npos: not there. `found` becomes the range that has them.
size_t place_in(const Rendered& rendered, size_t message, std::string_view words, Range& found) {
  for (const Written& written : rendered.written) {
    if (written.message != message) continue;
    const size_t at = part(rendered.text, written.range).find(words);
    if (at == std::string_view::npos) continue;
    found = written.range;
    return written.range.begin + at;
  }
  return std::string::npos;
}

/// The words of the probe, which no template has by itself.
constexpr std::string_view kAsked = "Zyqua", kSaid = "Zybor", kThen = kOtherWords;

ordered_json content_of(std::string_view words, bool as_parts) {
  if (!as_parts) return words;
  return ordered_json::array({{{"type", "text"}, {"text", words}}});
}

ordered_json probe(size_t messages, bool as_parts) {
  ordered_json all = ordered_json::array();
  for (const auto& [role, words] : {std::pair{"user", kAsked}, {"assistant", kSaid}, {"user", kThen}})
    if (all.size() < messages) all.push_back({{"role", role}, {"content", content_of(words, as_parts)}});
  return all;
}

std::optional<Rendered> rendered_probe(const ChatTemplate& chat_template, size_t messages, bool as_parts,
                                       const ordered_json& variables) {
  try {
    return chat_template.render(probe(messages, as_parts), false, variables);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Returns whether the words are in the text, and not as Python prints a list.
bool has_words(const std::optional<Rendered>& rendered) {
  if (!rendered) return false;
  for (const std::string_view words : {kAsked, kSaid}) {
    const size_t at = rendered->text.find(words);
    if (at == std::string::npos) return false;
    const std::string_view before = std::string_view(rendered->text).substr(0, at);
    if (before.ends_with("'text': '") || before.ends_with("\"text\": \"")) return false;
  }
  return true;
}

std::string as_json_text(const ordered_json& json) {
  try {
    Budget budget;
    return json_text(value_of(json), {}, budget);
  } catch (const Problem& problem) {
    throw Error(ExitCode::data, {.what = "the arguments of a call: " + std::string(problem.what())});
  }
}

ordered_json calls_of(const ordered_json& arguments) {
  return ordered_json::array(
      {{{"id", "abcdefghi"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}});
}

std::string without_last_spaces(std::string_view text) { return std::string(stripped(text, Side::right, " ")); }

}  // namespace

std::string TemplateHabits::prompt_after(const ChatTemplate& chat_template, const ordered_json& messages,
                                         const ordered_json& variables) {
  try {
    const Rendered with = chat_template.render(messages, true, variables);
    const size_t begin = with.written.empty() ? 0 : with.written.back().range.end;
    if (begin < with.text.size() && !with.written.empty()) return with.text.substr(begin);
    const std::string without = chat_template.render(messages, false, variables).text;
    return with.text.starts_with(without) ? with.text.substr(without.size()) : std::string();
  } catch (const Error&) {
    return {};
  }
}

TemplateHabits::TemplateHabits(const ChatTemplate& chat_template, const ordered_json& variables)
    : knows_developer_(chat_template.source().source().find("developer") != std::string::npos),
      names_(parsed(chat_template.source().source(), chat_template.source().name())->names) {
  std::array<std::optional<Rendered>, 2> middle;
  for (const bool as_parts : {false, true}) middle[as_parts] = rendered_probe(chat_template, 3, as_parts, variables);
  const bool reads_text = has_words(middle[0]), reads_parts = has_words(middle[1]);
  if (reads_text != reads_parts) content_ = reads_text ? Content::text : Content::parts;
  if (!reads_text && !reads_parts && (middle[0] || middle[1])) refusal_ = "it does not write what messages say";
  const bool as_parts = content_ == Content::parts;
  const auto last = rendered_probe(chat_template, 2, as_parts, variables);
  prompt_ = prompt_after(chat_template, probe(1, as_parts), variables);
  if (has_words(middle[as_parts]) && has_words(last)) look(*middle[as_parts], *last);
  if (middle[as_parts]) find_marks(middle[as_parts]->text + prompt_);
  find_form_of_calls(chat_template, variables);
  find_thoughts(chat_template, variables);
}

/// Tries a turn with words, and one with a call: some templates write the thoughts before calls alone.
void TemplateHabits::find_thoughts(const ChatTemplate& chat_template, const ordered_json& variables) {
  for (const bool calls : {false, true}) {
    ordered_json messages = probe(2, false);
    messages[1]["reasoning_content"] = kThen;
    if (calls) messages[1]["tool_calls"] = calls_of({{"a", kSaid}});
    try {
      const std::string text = chat_template.render(suited(messages), false, variables).text;
      writes_thoughts_ = writes_thoughts_ || text.find(kThen) != std::string::npos;
    } catch (const Error&) {
    }
  }
}

void TemplateHabits::find_marks(const std::string& text) {
  for (size_t open = text.find("<|"); open != std::string::npos; open = text.find("<|", open + 1)) {
    const std::string mark = text.substr(open, mark_at(std::string_view(text).substr(open)));
    if (mark.ends_with("|>") && std::ranges::find(marks_, mark) == marks_.end()) marks_.push_back(mark);
  }
}

/// Tries arguments as JSON and as text, with messages that have no content, or null, or an empty one: until the
/// template writes the arguments, else until it raises nothing.
void TemplateHabits::find_form_of_calls(const ChatTemplate& chat_template, const ordered_json& variables) {
  const auto written = [&](const ordered_json& arguments, const std::optional<ordered_json>& content) {
    ordered_json messages = probe(1, content_ == Content::parts), message = {{"role", "assistant"}};
    if (content) message["content"] = *content;
    message["tool_calls"] = calls_of(arguments);
    messages.push_back(std::move(message));
    try {
      return std::optional(chat_template.render(messages, false, variables).text);
    } catch (const Error&) {
      return std::optional<std::string>();
    }
  };
  const std::array<std::optional<ordered_json>, 3> contents = {std::nullopt, ordered_json(nullptr), ordered_json("")};
  const auto has_said = [](const std::optional<std::string>& text) {
    return text && text->find(kSaid) != std::string::npos;
  };
  bool is_found = false;
  for (const bool as_text : {false, true}) {
    const ordered_json object = {{"a", kSaid}}, arguments = as_text ? ordered_json(as_json_text(object)) : object;
    for (const auto& content : contents) {
      const auto text = written(arguments, content);
      if (!text || (is_found && !has_said(text))) continue;
      is_found = true;
      takes_arguments_as_text_ = as_text;
      content_of_calls_ = content;
      if (!has_said(text)) continue;
      loses_calls_beside_empty_ = !has_said(written(arguments, ""));
      return;
    }
  }
}

void TemplateHabits::look(const Rendered& middle, const Rendered& last) {
  Range turn{}, last_turn{};
  const size_t at = place_in(middle, 1, kSaid, turn), at_last = place_in(last, 1, kSaid, last_turn);
  Range others{};
  const bool mixes = place_in(middle, 1, kAsked, others) != std::string::npos ||
                     place_in(middle, 1, kThen, others) != std::string::npos;
  if (at == std::string::npos || at_last == std::string::npos || mixes) {
    refusal_ = mixes ? "it writes what others say within the assistant's turn"
                     : "it does not write a message where it goes through messages";
    return;
  }
  header_ = middle.text.substr(turn.begin, at - turn.begin);
  end_ = without_last_spaces(std::string_view(middle.text).substr(at + kSaid.size(), turn.end - at - kSaid.size()));
  last_end_ = without_last_spaces(std::string_view(last.text).substr(at_last + kSaid.size()));
  ends_turn_ = !is_blank(end_);
  ends_last_turn_ = !is_blank(last_end_);
}

bool TemplateHabits::reads_variable(const std::string& name) const {
  return name != "messages" && name != "add_generation_prompt" && std::ranges::count(names_, name) > 0;
}

bool TemplateHabits::known(const std::string& key, const std::function<bool()>& find) const {
  const std::lock_guard lock(told_mutex_);
  const auto at = known_.find(key);
  return at != known_.end() ? at->second : (known_[key] = find());
}

bool TemplateHabits::is_first(const std::string& text) const {
  const std::lock_guard lock(told_mutex_);
  return told_.insert(text).second;
}

void TemplateHabits::warn_once(const std::string& text) const {
  if (is_first(text)) log::warning(text);
}

ordered_json TemplateHabits::suited(const ordered_json& messages) const {
  ordered_json result = messages;
  for (ordered_json& message : result) {
    const bool has_content = message.contains("content") && !message["content"].is_null();
    const bool is_empty = !has_content || (loses_calls_beside_empty_ && message["content"] == "");
    if (is_empty && message.contains("tool_calls")) {
      message.erase("content");
      if (content_of_calls_) message["content"] = *content_of_calls_;
    }
    if (message.at("role") == "developer" && !knows_developer_) message["role"] = "system";
    if (const auto content = message.find("content"); content != message.end()) suit_content(*content);
    if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
      for (ordered_json& call : *calls) suit_arguments(call);
  }
  return result;
}

void TemplateHabits::suit_content(ordered_json& content) const {
  if (content_ == Content::parts && content.is_string()) {
    content = content_of(std::string(content.get_ref<const std::string&>()), true);
  } else if (content_ == Content::text && content.is_array()) {
    std::string joined;
    for (const ordered_json& one : content) joined += one.at("text").get_ref<const std::string&>();
    content = joined;
  }
}

/// OpenAI's records have them as JSON text, most templates write them by `tojson`.
void TemplateHabits::suit_arguments(ordered_json& call) const {
  if (!call.is_object()) return;
  ordered_json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
  const auto arguments = function.find("arguments");
  if (arguments == function.end()) return;
  if (takes_arguments_as_text_ && !arguments->is_string()) {
    *arguments = as_json_text(*arguments);
  } else if (!takes_arguments_as_text_ && arguments->is_string()) {
    ordered_json parsed = parse_json<ordered_json>(arguments->get_ref<const std::string&>());
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

}  // namespace gputrain::chat
