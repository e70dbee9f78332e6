#include "gputrain/records/given_texts.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "labels.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

using GivenRecord = nlohmann::ordered_json;

/// Where a record may have its text, its second one, its words.
struct GivenColumns {
  std::vector<std::string> text;
  std::string pair, words, label;
  bool names_pair = false;   // the job does: each record has it
  bool are_numbers = false;  // of a table whose first row may be a text

  explicit GivenColumns(const GivenTextFile& file) {
    const data::ColumnNames& names = file.columns;
    text = names.text ? std::vector{*names.text} : std::vector<std::string>{"text"};
    if (!names.text && file.use == TextUse::pairs) text.insert(text.end(), {"anchor", "sentence1"});
    pair = names.text_pair.value_or("text_pair");
    words = names.words.value_or("tokens");
    label = names.label.value_or("label");
    names_pair = names.text_pair.has_value() && file.use != TextUse::pairs;
    are_numbers = names.text && !text[0].empty() && text[0].find_first_not_of("0123456789") == std::string::npos;
  }
  std::vector<std::string> all(TextUse use) const {
    if (use == TextUse::tags) return {words};
    std::vector<std::string> all = text;
    all.insert(all.end(), {pair, label});
    return all;
  }
};

/// The format that an extension names, without .gz.
std::string format_of(const std::string& path) {
  std::filesystem::path name(path);
  if (lower_case(name.extension().string()) == ".gz") name = name.stem();
  return lower_case(name.extension().string());
}

std::vector<Record> lines_of(const std::string& path) {
  const std::string text = datasets::read_text(path);
  std::vector<Record> records;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1;
    records.push_back(
        {.value = std::move(line), .place = path + ":" + std::to_string(records.size() + 1), .problem = {}});
  }
  return records;
}

std::vector<Record> records_of(const GivenTextFile& file, const GivenColumns& columns) {
  const RecordFile wanted{.path = file.path, .columns = columns.all(file.use), .are_numbers = columns.are_numbers};
  const std::string format = format_of(file.path);
  int64_t bytes_left = datasets::kMostTextBytes;
  if (format == ".parquet") return records_of_parquet(wanted, bytes_left);
  if (format == ".conll") return records_of_conll({.path = file.path, .columns = {columns.words}}, bytes_left);
  if (format == ".jsonl") return records_of_json_lines(datasets::read_text(file.path), file.path);
  if (format == ".csv" || format == ".tsv")
    return records_of_table(datasets::read_text(file.path), wanted, format == ".csv" ? ',' : '\t');
  return lines_of(file.path);
}

const std::string* given_text_in(const GivenRecord& record, const std::string& column) {
  const auto found = record.find(column);
  return found != record.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

[[noreturn]] void refuse_record(const Record& record, const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::data, {.what = what, .where = record.place, .hint = hint});
}

std::vector<std::string> words_in(const Record& record, const std::string& column) {
  if (record.value.is_string()) {
    std::vector<std::string> words;
    const auto& line = record.value.get_ref<const std::string&>();
    for (size_t begin = 0; (begin = line.find_first_not_of(" \t", begin)) != std::string::npos;) {
      const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
      words.push_back(line.substr(begin, end - begin));
      begin = end;
    }
    return words;
  }
  const auto found = record.value.find(column);
  if (found == record.value.end() || !found->is_array())
    refuse_record(record, "no list of words in '" + column + "'", "a file .txt has a text per line, .conll a word");
  std::vector<std::string> words;
  for (const auto& word : *found) {
    if (!word.is_string()) refuse_record(record, "the list in '" + column + "' has something else than texts");
    words.push_back(word.get<std::string>());
  }
  return words;
}

GivenText given_text(const Record& record, const GivenColumns& columns, TextUse use) {
  GivenText given{.text = {}, .place = record.place};
  if (!record.problem.empty()) refuse_record(record, record.problem);
  if (use == TextUse::tags) {
    given.words = words_in(record, columns.words);
    return given;
  }
  if (record.value.is_string()) {
    if (columns.names_pair) refuse_record(record, "a line has one text, and the model reads two", "csv or jsonl");
    given.text = record.value.get<std::string>();
    return given;
  }
  const std::string* text = nullptr;
  for (const std::string& column : columns.text)
    if (text == nullptr) text = given_text_in(record.value, column);
  if (text == nullptr)
    refuse_record(record, "no text in '" + columns.text.front() + "'", "--set data.text.columns.text=NAME");
  given.text = *text;
  if (use == TextUse::pairs) return given;
  const std::string* pair = given_text_in(record.value, columns.pair);
  if (pair != nullptr) given.pair = *pair;
  if (pair == nullptr && columns.names_pair) refuse_record(record, "no text in '" + columns.pair + "'");
  return given;
}

/// Whether the first row of a table names its columns: what it has as a label is none.
bool is_row_of_names(const Record& first, const GivenColumns& columns, const GivenTextFile& file) {
  const std::string* label =
      columns.are_numbers && first.value.is_object() ? given_text_in(first.value, columns.label) : nullptr;
  if (label == nullptr) return false;
  try {
    if (file.use == TextUse::number) {
      number_in(*label);
    } else {
      for (const std::string& name : classes_named_in(*label))
        if (std::ranges::find(file.class_names, name) == file.class_names.end()) return !file.class_names.empty();
    }
  } catch (const Error&) {
    return true;
  }
  return false;
}

EncoderInput encoder_input(const GivenText& text, const tokenizers::Tokenizer& tokenizer, int64_t most) {
  std::vector<int64_t> tokens, word_begins;
  std::optional<std::vector<int64_t>> pair;
  for (const std::string& word : text.words) {
    // With the space before it that some tokenizers write into its first token, as when it was learned.
    const auto more = tokenizer.encode(" " + word, text.place);
    if (more.empty())
      throw Error(ExitCode::data,
                  {.what = "the word '" + printable(word.substr(0, 60)) + "' has no token", .where = text.place});
    word_begins.push_back(std::ssize(tokens));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (text.words.empty()) tokens = tokenizer.encode(text.text, text.place);
  if (text.pair) pair = tokenizer.encode(*text.pair, text.place);
  FramedTexts framed_texts = framed(tokenizer, std::move(tokens), std::move(pair), most);
  const tokenizers::Frame frame = tokenizer.frame(text.pair.has_value());
  if (framed_texts.tokens.empty()) throw Error(ExitCode::data, {.what = "the text is empty", .where = text.place});
  EncoderInput input{.tokens = std::move(framed_texts.tokens),
                     .second_type = static_cast<int64_t>(framed_texts.second),
                     .full_size = framed_texts.full_size};
  for (const int64_t begin : word_begins) {
    const int64_t place = begin + std::ssize(frame.before);
    if (place < std::ssize(input.tokens) - std::ssize(frame.behind)) input.word_places.push_back(place);
  }
  return input;
}

}  // namespace

std::vector<GivenText> read_given_texts(const GivenTextFile& file) {
  const GivenColumns columns(file);
  std::vector<Record> records = records_of(file, columns);
  if (!records.empty() && is_row_of_names(records.front(), columns, file)) records.erase(records.begin());
  if (records.empty()) throw Error(ExitCode::data, {.what = "there is no text", .where = file.path});
  std::vector<GivenText> texts;
  texts.reserve(records.size());
  for (const Record& record : records) texts.push_back(given_text(record, columns, file.use));
  return texts;
}

std::vector<EncoderInput> encoder_inputs(const std::vector<GivenText>& texts, const tokenizers::Tokenizer& tokenizer,
                                         int64_t most) {
  std::vector<EncoderInput> inputs(texts.size());
  datasets::parallel_for(texts.size(), [&](size_t i) { inputs[i] = encoder_input(texts[i], tokenizer, most); });
  return inputs;
}

}  // namespace gputrain::records
