// What a record says as one text, and which part of it is learned.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "../formats/record_file.hpp"

namespace gputrain::records {

using tokenizers::ByteRange;

struct LearnedText {
  std::string text;
  std::vector<ByteRange> learned;  // in order, without overlap
  /// Plain text, to which the tokenizer's tokens for begin and end are added; the end is learned. A chat template
  /// spells these tokens out.
  bool is_plain = true;
  bool is_document = false;  // may be cut into several samples
};

/// A prompt and an answer to it: texts, or lists of messages.
struct Dialogue {
  nlohmann::ordered_json prompt, answer;
};

/// What to try when a record has no column to learn from.
inline constexpr const char* kColumnsHint =
    "text, prompt with completion, messages, or instruction with output or response; data.text.columns names others";

/// The columns that texts are made of, under the names that the options give them.
std::vector<std::string> columns_of_texts(const data::TextOptions& options);

/// The list of messages that a text is as JSON, as tables have it; null: it is another text. Throws Error(data) if it
/// is such a list in another language, as pandas writes one.
nlohmann::ordered_json messages_in_text(const nlohmann::ordered_json& value, const std::string& column);

/// Whether it is a list, or the text of a list of messages as messages_in_text() finds one.
bool is_list_of_messages(const nlohmann::ordered_json& value);

/// Whether the column "system" of a record is used: not before messages that begin with another one.
bool reads_system(const nlohmann::ordered_json& record, const nlohmann::ordered_json* messages);

/// Turns records into texts. Thread-safe.
class RecordTexts {
  struct Told;  // warnings that were given

 public:
  /// The template is data.text.chat_template, or that of a tokenizer's folder (empty: none). Only conversations need
  /// it: the first one throws Error(usage) if there is none, or if it is broken.
  RecordTexts(const data::TextOptions& options, const std::filesystem::path& tokenizer_folder);

  /// By the columns that the record has: a text; a prompt with a completion; messages, conversations as ShareGPT names
  /// them, or an instruction with an output as Alpaca does. Throws Error(data).
  LearnedText of(const nlohmann::ordered_json& record) const;

  /// Warns if the tokenizer has not one token for a mark of the chat template, such as <|im_end|>.
  void check_marks(const tokenizers::Tokenizer& tokenizer) const;

  /// A prompt with an answer, which is what is learned: two texts, or two lists of messages. `record` may have tools
  /// and documents for the template. Throws Error(data).
  LearnedText answered(const Dialogue& dialogue, const nlohmann::ordered_json& record) const;

 private:
  LearnedText completion_of(const nlohmann::ordered_json& record) const;
  /// Sets `asked` to the number of those that are a prompt.
  nlohmann::ordered_json messages_of(const nlohmann::ordered_json& record, size_t& asked) const;
  LearnedText conversation_of(const nlohmann::ordered_json& record) const;
  chat::LearnedText rendered(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& record) const;
  void tell_unread(const chat::Conversations& conversations, const nlohmann::ordered_json& messages) const;
  void tell_once(const std::string& warning) const;
  bool learns_all() const { return options_.loss_on == "all"; }

  data::TextOptions options_;
  std::optional<chat::Conversations> conversations_, with_tools_;  // by the model's template for tools, if it has one
  std::optional<Error> no_template_;                               // why
  std::shared_ptr<Told> told_;
};

}  // namespace gputrain::records
