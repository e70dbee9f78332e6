#include "gputrain/records/found_records.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "formats/record_file.hpp"
#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "gputrain/records/record_reader.hpp"
#include "labels.hpp"
#include "samples/answers.hpp"
#include "tokens/learned_text.hpp"

namespace gputrain::records {
namespace {

using Json = nlohmann::ordered_json;
using Kind = FoundRecords::Kind;
using ColumnList = std::initializer_list<const char*>;

constexpr size_t kMostLookedAt = 200, kLongestQuestion = 200;

constexpr ColumnList kMessageColumns{"messages", "conversations", "conversation", "dialogue", "dialog", "chat"},
    kPromptColumns{"prompt", "question", "query", "input"},
    kCompletionColumns{"completion", "answer", "response", "output"},
    kTextColumns{"text", "sentence", "review", "content", "document", "body", "comment", "title"},
    kLabelColumns{"label", "labels", "class", "category", "target", "sentiment",
                  "topic", "intent", "score", "rating",   "stars"},
    kWordColumns{"tokens", "words"}, kTagColumns{"tags", "ner_tags", "pos_tags", "labels"};
constexpr ColumnList kOtherColumns{"chosen",    "rejected",  "anchor",      "positive", "negative", "sentence1",
                                   "sentence2", "text_pair", "instruction", "context",  "history",  "system"};

std::vector<Json> first_records(const std::string& path, const RecordFormat& format) {
  RecordFile file{.path = path, .columns = {}};
  for (const ColumnList& names : {kMessageColumns, kPromptColumns, kCompletionColumns, kTextColumns, kLabelColumns,
                                  kWordColumns, kTagColumns, kOtherColumns})
    file.columns.insert(file.columns.end(), names.begin(), names.end());
  std::vector<Record> records;
  try {
    int64_t bytes_left = datasets::kMostTextBytes;
    records = format.read(file, bytes_left);
  } catch (const Error& error) {
    if (format.name == "parquet" && error.code() == ExitCode::data) return {};  // it has none of the columns
    throw;
  }
  std::vector<Json> good;
  for (Record& record : records)
    if (record.problem.empty() && good.size() < kMostLookedAt) good.push_back(std::move(record.value));
  return good;
}

/// Records of one file.
class LookedAt {
 public:
  explicit LookedAt(std::vector<Json> records) : records_(std::move(records)) {}

  const Json& first() const { return records_.front(); }
  /// Returns the column of the first record with one of these names, in any case; empty: there is none.
  std::string column(ColumnList names) const {
    for (const char* name : names)
      for (const auto& [column, value] : first().items())
        if (lower_case(column) == name && !value.is_null()) return column;
    return {};
  }
  bool has(ColumnList columns) const {
    return std::ranges::all_of(columns, [&](const char* name) { return first().contains(name); });
  }
  /// Returns whether `read` takes every record.
  bool all(const std::function<void(const Json& record)>& read) const {
    try {
      for (const Json& record : records_) read(record);
      return true;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      return false;
    }
  }
  bool all_are(const std::string& column, const std::function<bool(const Json& value)>& holds) const {
    return std::ranges::all_of(records_, [&](const Json& record) {
      const auto found = record.find(column);
      return found != record.end() && holds(*found);
    });
  }
  const std::vector<Json>& records() const { return records_; }

 private:
  std::vector<Json> records_;
};

/// Returns "messages: chat" unless that is the usual name.
std::string column_setting(const char* key, const std::string& column, const char* usual) {
  if (column == usual) return {};
  std::string quoted = "'";
  for (const char c : column) quoted += c == '\'' ? "''" : std::string(1, c);
  return std::string(key) + ": " + quoted + "'";
}

std::string both_settings(const std::string& one, const std::string& other) {
  return one + (one.empty() || other.empty() ? "" : ", ") + other;
}

bool is_filled_text(const Json& value) { return value.is_string() && !value.get_ref<const std::string&>().empty(); }

/// Returns what the first user says.
std::string question_in(const Json& messages) {
  for (const Json& message : messages) {
    if (message.at("role") != "user" || !message.contains("content") || !message.at("content").is_string()) continue;
    const auto& content = message.at("content").get_ref<const std::string&>();
    return content.size() <= kLongestQuestion && content.find('\n') == std::string::npos ? content : "";
  }
  return {};
}

std::optional<FoundRecords> found_conversations(const LookedAt& records) {
  for (const char* name : kMessageColumns) {
    const std::string column = records.column({name});
    if (column.empty() || !is_list_of_messages(records.first()[column])) continue;
    const auto messages = [&](const Json& record) { return chat::usual_messages(value_of_column(record, column, {})); };
    if (!records.all([&](const Json& record) { messages(record); })) continue;
    const bool is_usual = column == "messages" || column == "conversations";
    return FoundRecords{.kind = Kind::conversations,
                        .format = {},
                        .columns = is_usual ? "" : column_setting("messages", column, ""),
                        .question = question_in(messages(records.first()))};
  }
  if (!records.has({"instruction"}) || !records.all([](const Json& record) { chat::messages_of(record); })) return {};
  return FoundRecords{
      .kind = Kind::conversations, .format = {}, .question = question_in(chat::messages_of(records.first()))};
}

std::optional<FoundRecords> found_answers(const LookedAt& records) {
  const data::ColumnNames usual;
  if (records.has({"chosen", "rejected"}) && records.all([&](const Json& record) { preference_in(record, usual); }))
    return FoundRecords{.kind = Kind::preferences, .format = {}};
  if (records.has({"completion", "label"}) && records.all([&](const Json& record) { ratings_in(record, usual); }))
    return FoundRecords{.kind = Kind::ratings, .format = {}};
  return {};
}

std::optional<FoundRecords> found_completions(const LookedAt& records) {
  const std::string prompt = records.column(kPromptColumns), completion = records.column(kCompletionColumns);
  if (prompt.empty() || completion.empty() || prompt == completion) return {};
  const std::string columns =
      both_settings(column_setting("prompt", prompt, "prompt"), column_setting("completion", completion, "completion"));
  if (records.all_are(prompt, is_list_of_messages) && records.all_are(completion, is_list_of_messages))
    return FoundRecords{.kind = Kind::conversations,
                        .format = {},
                        .columns = columns,
                        .question = question_in(chat::usual_messages(records.first()[prompt]))};
  if (!records.all_are(prompt, is_filled_text) || !records.all_are(completion, is_filled_text)) return {};
  return FoundRecords{.kind = Kind::completions, .format = {}, .columns = columns};
}

std::optional<FoundRecords> found_tags(const LookedAt& records) {
  const std::string words = records.column(kWordColumns), tags = records.column(kTagColumns);
  if (words.empty() || tags.empty()) return {};
  const bool fits = records.all([&](const Json& record) {
    if (texts_of_list(record, words).size() != texts_of_list(record, tags).size())
      throw Error(ExitCode::data, {.what = "words without tags"});
  });
  if (!fits) return {};
  return FoundRecords{
      .kind = Kind::tags,
      .format = {},
      .columns = both_settings(column_setting("words", words, "tokens"), column_setting("tags", tags, "tags"))};
}

std::optional<FoundRecords> found_pairs(const LookedAt& records) {
  if (records.has({"anchor", "positive"})) return FoundRecords{.kind = Kind::pairs, .format = {}};
  if (!records.has({"sentence1", "sentence2"}) || records.has({"label"})) return {};
  const bool has_scores = records.has({"score"});
  return FoundRecords{.kind = has_scores ? Kind::scored_pairs : Kind::pairs, .format = {}};
}

/// Returns whether labels are numbers that no class would be called by.
bool are_measured(const std::vector<Json>& records, const std::string& column) {
  bool is_broken = false;
  for (const Json& record : records) {
    const double value = number_in(value_of_column(record, column, {}));
    is_broken = is_broken || value != std::floor(value);
  }
  return is_broken;
}

/// Tells classes from other texts: they come again.
bool come_again(const LookedAt& records, const std::string& column) {
  std::set<std::string> classes;
  const bool fits =
      records.all([&](const Json& record) { classes.insert(class_named_in(value_of_column(record, column, {}))); });
  return fits && (classes.size() <= 2 || 2 * classes.size() <= records.records().size());
}

std::optional<FoundRecords> found_labelled(const LookedAt& records) {
  const bool are_pairs = records.has({"sentence1", "sentence2"});
  const std::string text = are_pairs ? "sentence1" : records.column(kTextColumns),
                    label = records.column(kLabelColumns);
  if (text.empty() || !records.all_are(text, is_filled_text)) return {};
  FoundRecords found{.kind = Kind::texts, .format = {}, .columns = column_setting("text", text, "text")};
  if (label.empty()) return found;
  found.columns = both_settings(found.columns, are_pairs ? column_setting("text_pair", "sentence2", "") : "");
  found.columns = both_settings(found.columns, column_setting("label", label, "label"));
  bool measured = false;
  if (records.all([&](const Json& record) { number_in(value_of_column(record, label, {})); }))
    measured = are_measured(records.records(), label);
  if (measured) {
    found.kind = Kind::numbers;
  } else if (records.all_are(label, [](const Json& value) { return value.is_array(); })) {
    found.kind = Kind::class_sets;
  } else if (come_again(records, label)) {
    found.kind = Kind::classes;
  } else {
    return {};
  }
  return found;
}

}  // namespace

std::optional<FoundRecords> found_records(const std::string& path) {
  const RecordFormat* format = format_of_file(path);
  if (format == nullptr) return {};
  if (format->name == "conll") return FoundRecords{.kind = Kind::tags, .format = format->name};
  const LookedAt records(first_records(path, *format));
  if (records.records().empty()) return {};
  // What has more columns comes first: answers with labels are no texts with classes.
  for (const auto& search :
       {found_answers, found_conversations, found_completions, found_tags, found_pairs, found_labelled}) {
    if (auto found = search(records)) {
      found->format = format->name;
      return found;
    }
  }
  return {};
}

std::string in_words(Kind kind) {
  switch (kind) {
    case Kind::conversations:
      return "conversations";
    case Kind::completions:
      return "prompts with completions";
    case Kind::preferences:
      return "prompts with a better and a worse answer";
    case Kind::ratings:
      return "answers that are good or bad";
    case Kind::classes:
      return "texts with a class";
    case Kind::class_sets:
      return "texts with a set of classes";
    case Kind::numbers:
      return "texts with a number";
    case Kind::tags:
      return "words with tags";
    case Kind::pairs:
      return "pairs of texts that are alike";
    case Kind::scored_pairs:
      return "pairs of texts with their likeness";
    case Kind::texts:
      return "texts";
  }
  return {};
}

}  // namespace gputrain::records
