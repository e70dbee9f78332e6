#include "turns.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "jinja/values/text.hpp"
#include "marks.hpp"
#include "unwritten.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;

/// Cuts a prompt before the thoughts that it begins: these are the model's, if the template writes them.
std::string_view without_thoughts(std::string_view prompt) {
  for (size_t open = prompt.find('<'); open != std::string_view::npos; open = prompt.find('<', open + 1)) {
    const std::string_view mark = prompt.substr(open, mark_at(prompt.substr(open)));
    if (mark.find("think") != std::string_view::npos) return stripped(prompt.substr(0, open), Side::right, " ");
  }
  return prompt;
}

/// Finds the turns of one conversation.
class Search {
 public:
  Search(const ChatTemplate& chat_template, const TemplateHabits& habits, const ordered_json& messages,
         const ordered_json& variables, const std::vector<bool>& is_learned, Rendered& rendered)
      : template_(chat_template),
        habits_(habits),
        messages_(messages),
        variables_(variables),
        is_learned_(is_learned),
        rendered_(rendered) {}

  std::vector<Turn> run() {
    std::vector<Turn> turns(messages_.size());
    for (size_t i = 0; i < turns.size(); ++i) turns[i].message = i;
    const bool has_marks = template_.source().marks_generated();
    for (const Written& written : rendered_.written)
      if (!has_marks || !is_assistant(written.message)) turns[written.message].said.push_back(written.range);
    if (has_marks) take_marked(turns);
    for (Turn& turn : turns) {
      const bool is_other = !is_assistant(turn.message);
      if (is_learned_[turn.message] && is_other) take_words(turn);
      if (is_learned_[turn.message] && !is_other && !has_marks) take_off_header(turn);
      if (turn.said.empty() || turn.end) continue;
      if (has_marks || is_other) {
        find_end(turn);
        continue;
      }
      const bool is_last = turn.message + 1 == turns.size();
      if (is_last) take_what_follows(turn);
      if (habits_.ends_turn(is_last)) {
        find_end(turn);
      } else {
        take_next_mark(turn);
      }
    }
    return turns;
  }

 private:
  std::string role(size_t message) const { return messages_[message].at("role").get<std::string>(); }
  bool is_assistant(size_t message) const { return role(message) == "assistant"; }

  /// Gives each range that the template marks to the message at which it stood, else to the next one of the assistant.
  void take_marked(std::vector<Turn>& turns) const {
    auto written = rendered_.written.begin();
    size_t message = 0;
    for (const Range& range : rendered_.generated) {
      while (written != rendered_.written.end() && written->range.begin <= range.begin) message = (written++)->message;
      if (range.begin >= range.end) continue;
      for (size_t next = message; !is_assistant(message) && next < turns.size(); ++next)
        if (is_assistant(next) && turns[next].said.empty()) message = next;
      turns[message].said.push_back(range);
    }
  }

  const std::string& prompt_before(size_t message) {
    const std::string before = message > 0 ? role(message - 1) : "";
    if (const auto known = prompts_.find(before); known != prompts_.end()) return known->second;
    ordered_json some = ordered_json::array();
    for (size_t i = 0; i < message; ++i) some.push_back(messages_[i]);
    return prompts_[before] =
               message > 0 ? TemplateHabits::prompt_after(template_, some, variables_) : habits_.prompt();
  }

  size_t header_size(size_t message, std::string_view turn) {
    const size_t spaces = turn.size() - stripped(turn, Side::left).size();
    for (const std::string* prompt : {&prompt_before(message), &habits_.prompt()}) {
      const std::string_view whole = without_thoughts(*prompt), mark = stripped(whole, Side::left);
      if (mark.empty()) continue;
      const size_t exact = shared_beginning(turn, whole), shared = shared_beginning(turn.substr(spaces), mark);
      if (exact > 0 && !is_blank(turn.substr(0, exact))) return exact;
      if (shared > 0) return spaces + shared;
    }
    return !is_blank(habits_.header()) && turn.starts_with(habits_.header()) ? habits_.header().size() : 0;
  }

  /// Renders the conversation with other words in all messages that are not the assistant's, different ones for each.
  const Rendered& with_other_words() {
    if (others_) return *others_;
    ordered_json other = messages_;
    for (size_t i = 0; i < other.size(); ++i)
      if (!is_assistant(i) && (is_learned_[i] || !words_of(other[i]).empty())) other[i]["content"] = other_words(i);
    others_ = template_.render(habits_.suited(other), false, variables_);
    return *others_;
  }

  /// Returns the size of a message's content at `at`: all of it, or without the spaces around; npos: it is not there.
  size_t content_size(size_t message, size_t at) const {
    std::string content;
    const ordered_json given = messages_[message].value("content", ordered_json());
    if (given.is_string()) content = given;
    if (given.is_array())
      for (const ordered_json& one : given) content += one.at("text").get_ref<const std::string&>();
    const std::string_view rest = std::string_view(rendered_.text).substr(std::min(at, rendered_.text.size()));
    for (const std::string_view written : {std::string_view(content), stripped(content, Side::both)})
      if (rest.starts_with(written)) return written.size();
    return std::string::npos;
  }

  /// Returns the begin of the words of a message not of the assistant: in its own turn, else anywhere. npos: unknown.
  size_t words_begin(size_t message) {
    const Rendered& others = with_other_words();
    const std::string words = other_words(message);
    size_t place = std::string::npos, from = 0, to = 0;  // in the other text; `to` is the place of `from` in this one
    for (const Written& written : others.written)
      if (place == std::string::npos && written.message == message)
        if (const size_t at = part(others.text, written.range).find(words); at != std::string::npos)
          place = written.range.begin + at;
    if (place == std::string::npos) place = others.text.find(words);
    if (place == std::string::npos) return place;
    for (size_t i = 0; i < std::min(others.written.size(), rendered_.written.size()); ++i) {
      if (others.written[i].range.begin > place || others.written[i].message != rendered_.written[i].message) break;
      from = others.written[i].range.begin, to = rendered_.written[i].range.begin;
    }
    for (size_t next = others.text.find(kOtherWords, from); next < place; next = others.text.find(kOtherWords, from)) {
      const size_t other = std::strtoul(others.text.c_str() + next + kOtherWords.size(), nullptr, 10);
      to += next - from;
      const size_t size = other < messages_.size() ? content_size(other, to) : std::string::npos;
      if (size == std::string::npos) return size;
      from = next + other_words(other).size(), to += size;
    }
    return to + place - from;
  }

  /// Limits a turn that is not the assistant's to its words and their end in the turn. If the words are written outside
  /// of their turn, as the first ones of the system often are, takes them with the mark that ends turns.
  void take_words(Turn& turn) {
    const size_t begin = words_begin(turn.message);
    for (size_t i = 0; i < turn.said.size(); ++i) {
      if (begin < turn.said[i].begin || begin > turn.said[i].end) continue;
      turn.said.erase(turn.said.begin(), turn.said.begin() + static_cast<std::ptrdiff_t>(i));
      turn.said[0].begin = begin;
      trim(turn);
      return;
    }
    const bool is_left_out = words_of(messages_[turn.message]).empty() ||
                             (begin == std::string::npos && is_blank_turn(turn));  // others warn of that
    const size_t size = begin == std::string::npos ? begin : content_size(turn.message, begin);
    turn.said.clear();
    if (is_left_out) return;
    if (size == std::string::npos)
      throw Error(ExitCode::data,
                  {.what = "this chat template does not tell where message " + std::to_string(turn.message + 1) +
                           " of the role '" + printable(role(turn.message).substr(0, 40)) + "' says its words",
                   .where = template_.source().name(),
                   .hint = "leave this role out of data.text.roles_to_train, or let the template write each message as "
                           "it is, at its turn"});
    const bool has_end = std::string_view(rendered_.text).substr(begin + size).starts_with(habits_.end());
    turn.said.push_back({begin, begin + size + (has_end ? habits_.end().size() : 0)});
    if (has_end) turn.end = {begin + size, turn.said[0].end};
  }

  bool is_blank_turn(const Turn& turn) const {
    return std::ranges::all_of(turn.said, [&](const Range& range) { return is_blank(part(rendered_.text, range)); });
  }

  void take_off_header(Turn& turn) {
    if (turn.said.empty()) return;
    Range& first = turn.said.front();
    first.begin += header_size(turn.message, part(rendered_.text, first));
    if (first.begin == first.end && turn.said.size() > 1) turn.said.erase(turn.said.begin());
    trim(turn);
  }

  /// Leaves a space at the end to the word that follows it.
  void trim(Turn& turn) const {
    Range& last = turn.said.back();
    const std::string_view text = part(rendered_.text, last);
    if (!is_blank(text)) last.end = last.begin + stripped(text, Side::right, " ").size();
  }

  /// Adds the text that the template writes after all messages, for example </s>, to the last turn.
  void take_what_follows(Turn& turn) {
    const size_t end = turn.said.back().end, after = rendered_.written.back().range.end;
    if (after >= rendered_.text.size() || is_blank(std::string_view(rendered_.text).substr(after))) return;
    if (end == after) {
      turn.said.back().end = rendered_.text.size();
    } else {
      turn.said.push_back({after, rendered_.text.size()});
    }
  }

  void find_end(Turn& turn) const {
    const Range last = turn.said.back();
    const std::string_view text = part(rendered_.text, last);
    for (const std::string* end : {&habits_.last_end(), &habits_.end()})
      if (!is_blank(*end) && text.ends_with(*end)) {
        turn.end = {last.end - end->size(), last.end};
        return;
      }
    const size_t mark = ending_mark(text);
    if (mark < text.size()) turn.end = {last.begin + mark, last.end};
  }

  /// Takes the mark that begins the next turn as the end of this one, if the template writes no other.
  void take_next_mark(Turn& turn) {
    const Range last = turn.said.back();
    const std::string_view rest = std::string_view(rendered_.text).substr(last.end);
    size_t mark = beginning_mark(rest);
    if (is_blank(rest) && append_next_mark(turn.message) > 0) mark = rendered_.text.size() - last.end;
    if (mark == 0)
      throw Error(ExitCode::data,
                  {.what = "nothing ends a turn in this chat template, so a model would not learn to stop",
                   .where = template_.source().name(),
                   .hint = "let the template write eos_token after what the assistant says"});
    turn.end = {last.end, last.end + mark};
    turn.said.back().end += mark;
  }

  size_t append_next_mark(size_t message) {
    ordered_json more = messages_;
    const bool calls = messages_[message].contains("tool_calls");
    more.push_back({{"role", calls ? "tool" : "user"}, {"content", kOtherWords}});
    more = habits_.suited(more);
    try {
      const Rendered longer = template_.render(more, false, variables_);
      for (const Written& written : longer.written) {
        if (written.message != message + 1) continue;
        const std::string_view text = part(longer.text, written.range);
        const std::string mark(text.substr(0, beginning_mark(text)));
        rendered_.text += mark;
        return mark.size();
      }
    } catch (const Error&) {
    }
    return 0;
  }

  const ChatTemplate& template_;
  const TemplateHabits& habits_;
  const ordered_json &messages_, &variables_;
  const std::vector<bool>& is_learned_;
  Rendered& rendered_;
  std::optional<Rendered> others_;              // with other words in all messages but the assistant's
  std::map<std::string, std::string> prompts_;  // keys: role of the message before
};

}  // namespace

std::vector<Turn> find_turns(const ChatTemplate& chat_template, const TemplateHabits& habits,
                             const ordered_json& messages, const ordered_json& variables,
                             const std::vector<bool>& is_learned, Rendered& rendered) {
  return Search(chat_template, habits, messages, variables, is_learned, rendered).run();
}

}  // namespace gputrain::chat
