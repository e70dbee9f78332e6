#include "gputrain/records/found_records.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
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
constexpr double kMostBad = 0.05;  // fraction of preferences without a difference, such as UltraFeedback has

constexpr ColumnList kMessageColumns{"messages", "conversations", "conversation", "dialogue", "dialog", "chat"},
    kPromptColumns{"prompt", "question", "query", "input"}, kSearchColumns{"anchor", "query", "question", "sentence1"},
    kFoundColumns{"positive", "document", "passage", "sentence2"}, kAnswerColumns{"answer", "response", "context"},
    kNegativeColumns{"negative", "hard_negative"}, kCompletionColumns{"completion", "answer", "response", "output"},
    kTextColumns{"text", "sentence", "review", "content", "document", "body", "comment", "title"},
    kLabelColumns{"label", "labels", "class", "category", "target", "sentiment",
                  "topic", "intent", "score", "rating",   "stars"},
    kWordColumns{"tokens", "words"}, kTagColumns{"tags", "ner_tags", "pos_tags", "labels"};
constexpr ColumnList kOtherColumns{"chosen", "rejected", "text_pair", "instruction", "history", "system"};

std::vector<Json> first_records(const std::string& path, const RecordFormat& format, bool are_numbers = false) {
  RecordFile file{.path = path, .columns = {}, .are_numbers = are_numbers};
  for (const ColumnList& names :
       {kMessageColumns, kPromptColumns, kCompletionColumns, kTextColumns, kLabelColumns, kWordColumns, kTagColumns,
        kSearchColumns, kFoundColumns, kAnswerColumns, kNegativeColumns, kOtherColumns})
    file.columns.insert(file.columns.end(), names.begin(), names.end());
  if (are_numbers) file.columns = {"0", "1"};
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
    return std::ranges::all_of(records_, [&](const Json& record) { return takes(read, record); });
  }
  /// Counts the records that `read` refuses.
  int64_t count_refused(const std::function<void(const Json& record)>& read) const {
    return std::ranges::count_if(records_, [&](const Json& record) { return !takes(read, record); });
  }
  bool all_are(const std::string& column, const std::function<bool(const Json& value)>& holds) const {
    return std::ranges::all_of(records_, [&](const Json& record) {
      const auto found = record.find(column);
      return found != record.end() && holds(*found);
    });
  }
  const std::vector<Json>& records() const { return records_; }

 private:
  static bool takes(const std::function<void(const Json& record)>& read, const Json& record) {
    try {
      read(record);
      return true;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      return false;
    }
  }

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
                        .is_chat = true,
                        .question = question_in(messages(records.first()))};
  }
  if (!records.has({"instruction"}) || !records.all([](const Json& record) { chat::messages_of(record); })) return {};
  return FoundRecords{.kind = Kind::conversations,
                      .format = {},
                      .is_chat = true,
                      .question = question_in(chat::messages_of(records.first()))};
}

std::optional<FoundRecords> found_answers(const LookedAt& records) {
  const data::ColumnNames usual;
  if (records.has({"chosen", "rejected"})) {
    bool is_chat = false;
    const int64_t refused = records.count_refused(
        [&](const Json& record) { is_chat = preference_in(record, usual).chosen.answer.is_array() || is_chat; });
    if (static_cast<double>(refused) > kMostBad * static_cast<double>(records.records().size())) return {};
    return FoundRecords{
        .kind = Kind::preferences, .format = {}, .is_chat = is_chat, .max_bad_fraction = refused > 0 ? kMostBad : 0};
  }
  bool is_chat = false;
  const auto rate = [&](const Json& record) {
    is_chat = ratings_in(record, usual).front().dialogue.answer.is_array() || is_chat;
  };
  if (records.has({"completion", "label"}) && records.all(rate))
    return FoundRecords{.kind = Kind::ratings, .format = {}, .is_chat = is_chat};
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
                        .is_chat = true,
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

/// Returns the setting of a column that an embedder reads; empty: it is a usual one.
std::string partner_setting(const char* key, const std::string& column, ColumnList usual) {
  return std::ranges::find(usual, column) != usual.end() ? "" : column_setting(key, column, "");
}

/// Finds texts that are alike by the columns of sentence-transformers' data sets.
std::optional<FoundRecords> found_partners(const LookedAt& records, ColumnList firsts, ColumnList seconds) {
  const std::string first = records.column(firsts), second = records.column(seconds),
                    negative = records.column(kNegativeColumns);
  if (first.empty() || second.empty() || records.has({"label"})) return {};
  if (!records.all_are(first, is_filled_text) || !records.all_are(second, is_filled_text)) return {};
  const std::string texts = both_settings(partner_setting("text", first, {"anchor", "sentence1"}),
                                          partner_setting("text_pair", second, {"positive", "sentence2"}));
  return FoundRecords{
      .kind = records.has({"score"}) ? Kind::scored_pairs : Kind::pairs,
      .format = {},
      .columns = both_settings(texts, negative.empty() ? "" : column_setting("negative", negative, "negative"))};
}

std::optional<FoundRecords> found_pairs(const LookedAt& records) {
  return found_partners(records, kSearchColumns, kFoundColumns);
}

/// Finds questions with answers: a language model learns to write these, an embedder to find them.
std::optional<FoundRecords> found_answered(const LookedAt& records) {
  return found_partners(records, kSearchColumns, kAnswerColumns);
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
  if (label.empty()) {
    const auto first = records.first()[text].get<std::string>();
    found.question = first.substr(0, first.find_first_of(" \t\r\n"));
    if (found.question.size() > kLongestQuestion) found.question.clear();
    return found;
  }
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

/// Finds texts with classes in a table without a row of names, such as SST-2's: the first row's class comes again.
std::optional<FoundRecords> found_without_names(const std::string& path, const RecordFormat& format) {
  const LookedAt rows(first_records(path, format, /*are_numbers=*/true));
  if (rows.records().size() < 3) return {};
  std::string text, label;
  double most_words = 0;
  for (const auto& [column, first] : rows.first().items()) {
    if (!rows.all_are(column, is_filled_text)) continue;
    double words = 0;
    std::map<std::string, int> counts;
    for (const Json& row : rows.records()) {
      const auto& cell = row[column].get_ref<const std::string&>();
      words += static_cast<double>(1 + std::ranges::count(cell, ' '));
      ++counts[cell];
    }
    words /= static_cast<double>(rows.records().size());
    constexpr size_t kFewestOfClass = 3;  // mean number of rows
    if (counts[first.get_ref<const std::string&>()] > 1 && counts.size() > 1 &&
        kFewestOfClass * counts.size() <= rows.records().size()) {
      if (!label.empty()) return {};  // which one is the class is not known
      label = column;
    } else if (words > std::max(2.0, most_words)) {
      text = column;
      most_words = words;
    }
  }
  if (text.empty() || label.empty()) return {};
  return FoundRecords{.kind = Kind::classes,
                      .format = format.name,
                      .columns = "text: " + text + ", label: " + label,
                      .has_no_names = true};
}

}  // namespace

std::optional<FoundRecords> found_records(const std::string& path, bool for_encoder) {
  const RecordFormat* format = format_of_file(path);
  if (format == nullptr && is_conll_file(path)) format = &format_named("conll");
  if (format == nullptr) return {};
  if (format->name == "conll") return FoundRecords{.kind = Kind::tags, .format = format->name};
  const LookedAt records(first_records(path, *format));
  if (records.records().empty()) return {};
  // What has more columns comes first: answers with labels are no texts with classes.
  std::vector<std::optional<FoundRecords> (*)(const LookedAt&)> searches{
      found_answers, found_conversations, found_completions, found_tags, found_pairs, found_labelled};
  if (for_encoder) searches.insert(searches.begin() + 2, {found_pairs, found_answered});
  for (const auto& search : searches) {
    auto found = search(records);
    if (!found) continue;
    found->format = format->name;
    return found;
  }
  const bool has_first_row = format->name == "csv" || format->name == "tsv";
  return has_first_row ? found_without_names(path, *format) : std::nullopt;
}

std::string column_names_of(const std::string& path) {
  const RecordFormat* format = format_of_file(path);
  if (format == nullptr || format->name == "conll") return {};
  const std::vector<Json> records = first_records(path, *format);
  std::string names;
  if (!records.empty())
    for (const auto& [name, value] : records.front().items()) names += (names.empty() ? "" : ", ") + name;
  return names;
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
