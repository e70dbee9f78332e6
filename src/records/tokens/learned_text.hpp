// Text of a record, with the part of it that is learned.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../formats/record_file.hpp"
#include "gputrain/chat/conversation.hpp"
#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::records {

using tokenizers::ByteRange;

struct LearnedText {
  std::string text;
  std::vector<ByteRange> learned;  // ranges in order, without overlap
  /// True: plain text, to which the tokenizer's tokens for begin and end are added; the end is learned. A chat template
  /// spells these tokens out.
  bool is_plain = true;
  bool is_document = false;  // true: may be cut into several samples
};

/// A prompt and an answer to it: texts, or lists of messages.
struct Dialogue {
  nlohmann::ordered_json prompt, answer;
};

/// Hint for a record that has no column to learn from.
inline constexpr const char* kColumnsHint =
    "text, prompt with completion, messages, or instruction with output or response; data.text.columns names others";

/// Returns the columns that texts are made of, under the names that the options give them.
std::vector<std::string> columns_of_texts(const data::TextOptions& options);

/// Returns the list of messages in the JSON text of a table; null: it is another text. Throws Error(data) if it is such
/// a list in another language, as pandas writes one.
nlohmann::ordered_json messages_in_text(const nlohmann::ordered_json& value, const std::string& column);

/// Returns whether it is a list, or the text of a list of messages as messages_in_text() finds one.
bool is_list_of_messages(const nlohmann::ordered_json& value);

/// Returns whether the column "system" of a record is used: not before messages that begin with another one.
bool reads_system(const nlohmann::ordered_json& record, const nlohmann::ordered_json* messages);

/// Converter of records into texts. Thread-safe.
class RecordTexts {
  struct Told;  // given warnings

 public:
  /// Uses data.text.chat_template, or the template of a tokenizer's folder (empty: none). Only conversations need it:
  /// the first one throws Error(usage) if there is none, or if it is broken.
  RecordTexts(const data::TextOptions& options, const std::filesystem::path& tokenizer_folder);

  /// Chooses by the columns of the record: a text; a prompt with a completion; messages, conversations as ShareGPT
  /// names them, or an instruction with an output as Alpaca does. Throws Error(data).
  LearnedText of(const nlohmann::ordered_json& record) const;

  /// Returns whether a text so far was a conversation, which the chat template has written.
  bool has_conversations() const;
  /// Warns if data.text.chat_template has written none of the texts. Warns if the tokenizer has no
  /// single token for a mark of the chat template, such as <|im_end|>.
  void check_marks(const tokenizers::Tokenizer& tokenizer) const;

  /// Returns a prompt with an answer, which is learned: two texts, or two lists of messages. `record` may have tools
  /// and documents for the template. Throws Error(data).
  LearnedText answered(const Dialogue& dialogue, const nlohmann::ordered_json& record) const;

 private:
  LearnedText completion_of(const nlohmann::ordered_json& record) const;
  /// Returns the messages, and sets `asked` to the number of those that are a prompt.
  nlohmann::ordered_json messages_of(const nlohmann::ordered_json& record, size_t& asked) const;
  LearnedText conversation_of(const nlohmann::ordered_json& record) const;
  chat::LearnedText rendered(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& record) const;
  void tell_unread(const chat::Conversations& conversations, const nlohmann::ordered_json& messages) const;
  void tell_once(const std::string& warning) const;
  bool learns_all() const { return options_.loss_on == "all"; }

  data::TextOptions options_;
  std::optional<chat::Conversations> conversations_, with_tools_;  // with_tools_: with the template for tools, if any
  std::optional<Error> no_template_;                               // reason why there is none
  std::shared_ptr<Told> told_;
};

}  // namespace gputrain::records
