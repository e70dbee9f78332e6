// The habits of a chat template: what it writes around the words of any conversation.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"

namespace gputrain::chat {

/// The words of the last message of the probe: no template has them by itself.
inline constexpr std::string_view kOtherWords = "Zycus";
/// Returns such words for a number. No other number has the same, nor words that begin with them.
inline std::string other_words(size_t number) { return std::string(kOtherWords) + std::to_string(number) + "x"; }

/// The habits of a template, found out by rendering a short conversation.
class TemplateHabits {
 public:
  /// `variables` are those that all conversations have.
  TemplateHabits(const ChatTemplate& chat_template, const nlohmann::ordered_json& variables);

  /// Returns messages with contents and arguments of calls in the template's form: texts, or lists of parts, or JSON.
  nlohmann::ordered_json suited(const nlohmann::ordered_json& messages) const;

  /// Returns the text that it writes after a message of the user for the model to go on.
  const std::string& prompt() const { return prompt_; }
  /// Returns the text between the begin of an assistant's turn and its words.
  const std::string& header() const { return header_; }
  /// Return the end of such a turn, if other messages follow, and if it is the last.
  const std::string& end() const { return end_; }
  const std::string& last_end() const { return last_end_; }
  /// Returns whether it writes anything after the assistant's words. Unknown counts as yes.
  bool ends_turn(bool is_last) const { return is_last ? ends_last_turn_ : ends_turn_; }
  /// Returns whether it writes the thoughts of the assistant, at least in the last turn.
  bool writes_thoughts() const { return writes_thoughts_; }
  /// Returns the marks <|...|> that it writes.
  const std::vector<std::string>& marks() const { return marks_; }
  /// Returns why the words of the assistant cannot be told from the rest; empty: they can.
  const std::string& refusal() const { return refusal_; }

  /// Returns whether the template names this variable, and not only as one that each rendering sets.
  bool reads_variable(const std::string& name) const;

  /// Returns the result of `find` for this key, which is called once. Thread-safe.
  bool known(const std::string& key, const std::function<bool()>& find) const;

  /// Returns whether this is asked for the first time. Thread-safe.
  bool is_first(const std::string& text) const;
  /// Warns with each text once. Thread-safe.
  void warn_once(const std::string& text) const;

  /// Returns the text that the template puts behind messages, or adds to the last of them, for the model to go on.
  /// Empty if it raises.
  static std::string prompt_after(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages,
                                  const nlohmann::ordered_json& variables);

 private:
  void find_marks(const std::string& text);
  void look(const Rendered& middle, const Rendered& last);
  void find_thoughts(const ChatTemplate& chat_template, const nlohmann::ordered_json& variables);
  void find_form_of_calls(const ChatTemplate& chat_template, const nlohmann::ordered_json& variables);
  void suit_content(nlohmann::ordered_json& content) const;
  void suit_arguments(nlohmann::ordered_json& call) const;

  enum class Content { any, text, parts };
  Content content_ = Content::any;
  std::string prompt_, header_, end_, last_end_, refusal_;
  std::vector<std::string> marks_;
  bool ends_turn_ = true, ends_last_turn_ = true, takes_arguments_as_text_ = false, writes_thoughts_ = false;
  bool loses_calls_beside_empty_ = false;  // a content that is "", but not one that is null or missing
  bool knows_developer_;
  mutable std::mutex told_mutex_;
  mutable std::set<std::string> told_;
  mutable std::map<std::string, bool> known_;
  std::vector<std::string> names_;                          // variables that the template names
  std::optional<nlohmann::ordered_json> content_of_calls_;  // content of a message that has calls alone
};

}  // namespace gputrain::chat
