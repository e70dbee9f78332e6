#include "gputrain/chat/conversation.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "jinja/values/text.hpp"
#include "marks.hpp"
#include "turns.hpp"
#include "unwritten.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> roles_of(const ordered_json& messages) {
  std::vector<std::string> roles;
  for (const ordered_json& message : messages) roles.push_back(message.at("role"));
  return roles;
}

bool is_assistant(const ordered_json& message) { return message.at("role") == "assistant"; }

/// Adds a range behind the others; joins it to the last one if they touch.
void add(std::vector<LearnedText::Part>& parts, const Range& range, size_t message) {
  if (range.begin >= range.end) return;
  if (!parts.empty() && parts.back().range.end == range.begin && parts.back().message == message) {
    parts.back().range.end = range.end;
  } else {
    parts.push_back({range, message});
  }
}

/// Returns whether the message itself says that it is learned: by `weight`, as OpenAI's records have it, or `train`.
bool is_wanted(const ordered_json& message) {
  const auto weight = message.find("weight"), train = message.find("train");
  return (weight == message.end() || *weight != 0) && (train == message.end() || *train != false);
}

/// Returns whether a key is read in any case, or need not be: those of a tool only repeat which call it answers.
bool is_known_key(const std::string& role, const std::string& key) {
  constexpr std::array kRead{"role", "content", "tool_calls", "weight", "train", "train_detail", "alpaca"};
  return std::ranges::find(kRead, key) != kRead.end() || (role == "tool" && (key == "name" || key == "tool_call_id"));
}

bool is_thought(const std::string& key) {
  return key == "thinking" || key == "reasoning_content" || key == "reasoning";
}

/// Returns which messages are learned. A role may be named as in the data, or as the template knows it.
std::vector<bool> learned_ones(const Learning& learning, const ordered_json& given, const ordered_json& messages) {
  std::vector<bool> learned;
  for (size_t i = 0; i < messages.size(); ++i)
    learned.push_back(is_wanted(messages[i]) && std::ranges::any_of(learning.roles, [&](const std::string& role) {
                        return given[i].at("role") == role || messages[i].at("role") == role;
                      }));
  return learned;
}

bool learns_end(Learning::Ends ends, bool is_learned, bool is_last) {
  switch (ends) {
    case Learning::Ends::of_turns:
      return is_learned;
    case Learning::Ends::last:
      return is_last;
    case Learning::Ends::all:
      return true;
    case Learning::Ends::none:
      break;
  }
  return false;
}

/// Adds the learned parts of a turn: its words, its end, or both.
void add_turn(std::vector<LearnedText::Part>& parts, const Turn& turn, bool words, bool end) {
  const size_t ends_at = turn.end ? turn.end->begin : std::string::npos;
  for (const Range& range : turn.said) {
    if (words) add(parts, {range.begin, std::min(range.end, ends_at)}, turn.message);
    if (end) add(parts, {std::max(range.begin, ends_at), range.end}, turn.message);
  }
}

constexpr const char* kNoEnds =
    "the chat template does not mark the end of a turn by {% generation %}: a model does not learn to stop";

/// Returns whether what ends a turn stands behind what the template marks, or nowhere.
bool lacks_end(const TemplateHabits& habits, const Turn& turn, const std::string& text) {
  if (turn.said.empty() || turn.end) return false;
  const std::string_view rest = stripped(std::string_view(text).substr(turn.said.back().end), Side::left);
  return is_blank(habits.end()) || rest.starts_with(stripped(habits.end(), Side::both));
}

/// Refuses if nothing is found of what the assistant says, or more than that.
void check_told(const ChatTemplate& chat_template, const TemplateHabits& habits, const ordered_json& messages,
                const std::vector<Turn>& turns) {
  bool has_any_words = false, is_told = false;
  for (const Turn& turn : turns) {
    if (!is_assistant(messages[turn.message])) continue;
    has_any_words = has_any_words || !words_of(messages[turn.message]).empty();
    is_told = is_told || !turn.said.empty();
  }
  const bool has_marks = chat_template.source().marks_generated();
  if (!has_any_words || (is_told && (has_marks || habits.refusal().empty()))) return;
  const std::string why = has_marks                  ? "its {% generation %} blocks are empty"
                          : habits.refusal().empty() ? "it writes nothing for its messages"
                                                     : habits.refusal();
  throw Error(ExitCode::data,
              {.what = "this chat template does not tell what the assistant says: " + why,
               .where = chat_template.source().name(),
               .hint = "let it write each of `messages` in order, or put what the assistant says between "
                       "{% generation %} and {% endgeneration %}"});
}

}  // namespace

Conversations::Conversations(ChatTemplate chat_template, const ordered_json& variables, Learning learning)
    : template_(std::move(chat_template)),
      variables_(std::make_shared<const ordered_json>(variables)),
      learning_(std::move(learning)),
      habits_(std::make_shared<const TemplateHabits>(template_, variables)) {}

LearnedText Conversations::learned(const ordered_json& given, const ordered_json& variables) const {
  check_messages(given);
  const ordered_json messages = habits_->suited(given);
  ordered_json all = *variables_;
  all.update(variables);
  Rendered rendered = template_.render(messages, false, all);
  const Given conversation{template_, *habits_, messages, all, rendered};
  check_calls(conversation);
  tell_lost_messages(conversation, roles_of(given));
  tell_lost_variables(conversation);
  const std::vector<bool> wanted = learned_ones(learning_, given, messages);
  const std::vector<Turn> turns = find_turns(template_, *habits_, messages, all, wanted, rendered);
  LearnedText result{std::move(rendered.text), {}};
  const auto learns = [&](const Turn& turn) { return wanted[turn.message]; };
  if (template_.source().marks_generated() && learning_.ends != Learning::Ends::none &&
      std::ranges::any_of(turns, [&](const Turn& turn) {
        return learns(turn) && is_assistant(messages[turn.message]) && lacks_end(*habits_, turn, result.text);
      }))
    habits_->warn_once(kNoEnds);
  const auto last = std::ranges::find_if(turns.rbegin(), turns.rend(), learns);
  for (const Turn& turn : turns) {
    const bool is_learned = learns(turn), is_last = last != turns.rend() && &*last == &turn;
    add_turn(result.learned, turn, is_learned, learns_end(learning_.ends, is_learned, is_last));
  }
  std::ranges::stable_sort(result.learned, {}, [](const LearnedText::Part& one) { return one.range.begin; });
  check_told(template_, *habits_, messages, turns);
  return result;
}

std::vector<std::string> Conversations::marks() const { return habits_->marks(); }

std::vector<std::string> Conversations::unread_keys(const ordered_json& given) const {
  std::vector<std::string> unread;
  const ordered_json messages = habits_->suited(given);
  for (const ordered_json& message : messages)
    for (const auto& [key, value] : message.items()) {
      const auto& role = message.at("role").get_ref<const std::string&>();
      if (is_known_key(role, key) || value == "" || (!value.is_primitive() && value.empty()) || value.is_null())
        continue;
      const bool is_read = habits_->known(
          role + '\n' + key, [&, &name = key] { return reads_key(template_, messages, *variables_, role, name); });
      if (!is_read && !(is_thought(key) && habits_->writes_thoughts()) && std::ranges::count(unread, key) == 0)
        unread.push_back(key);
    }
  return unread;
}

}  // namespace gputrain::chat
