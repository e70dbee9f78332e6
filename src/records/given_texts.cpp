#include "gputrain/records/given_texts.hpp"

#include <algorithm>
#include <utility>

#include "formats/first_row.hpp"
#include "formats/record_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "samples/text_samples.hpp"
#include "tokens/encoded_texts.hpp"

namespace gputrain::records {
namespace {

/// Reads a record per line: JSON where the lines are JSON objects, else a text.
std::vector<Record> lines_of(const RecordFile& file) {
  int64_t bytes_left = datasets::kMostTextBytes;
  datasets::TextWindow text(file.path, bytes_left);
  if (is_json_records(text.text(), !text.has_more())) {
    log::warning(file.path + " has JSON objects, and is read as .jsonl");
    return records_of_json(text, file);
  }
  std::vector<Record> records;
  while (auto line = text.next_line()) {
    if (line->ends_with('\r')) line->remove_suffix(1);
    records.push_back(
        {.value = std::string(*line), .place = file.path + ":" + std::to_string(records.size() + 1), .problem = {}});
  }
  return records;
}

std::vector<Record> records_of(const RecordFile& wanted, Target target) {
  const RecordFormat* format = format_of_file(wanted.path);
  if (format == nullptr && target == Target::tags && is_conll_file(wanted.path)) {
    log::warning(wanted.path + " has a word with its tag in each line, and is read as .conll");
    format = &format_named("conll");
  }
  if (format == nullptr) return lines_of(wanted);
  int64_t bytes_left = datasets::kMostTextBytes;
  return format->read(wanted, bytes_left);
}

std::vector<LearnedText> words_in(const std::string& line) {
  std::vector<LearnedText> words;
  for (size_t begin = 0; (begin = line.find_first_not_of(" \t", begin)) != std::string::npos;) {
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back({.text = line.substr(begin, end - begin)});
    begin = end;
  }
  return words;
}

/// Makes the model's input of the record, or the line.
Draft draft_of(const Record& record, const GivenTextFile& file, const SampleBuilder& builder) {
  Draft draft{.place = record.place};
  try {
    if (!record.problem.empty()) throw Error(ExitCode::data, {.what = record.problem});
    if (!record.value.is_string()) {
      builder.read_input(record.value, draft);
    } else if (file.target == Target::tags) {
      draft.texts = words_in(record.value.get_ref<const std::string&>());
    } else {
      if (file.columns.text_pair && file.target != Target::pairs)
        throw Error(ExitCode::data, {.what = "a line has one text, and the model reads two", .hint = "csv or jsonl"});
      draft.texts.push_back({.text = record.value.get<std::string>()});
    }
  } catch (const Error& error) {
    throw Error(error.code(), {.what = error.parts().what, .where = record.place, .hint = error.parts().hint});
  }
  return draft;
}

GivenText given_text(Draft draft, Target target) {
  GivenText given{.text = {}, .place = std::move(draft.place)};
  if (target == Target::tags) {
    for (LearnedText& word : draft.texts) given.words.push_back(std::move(word.text));
    return given;
  }
  given.text = std::move(draft.texts.at(0).text);
  if (draft.texts.size() > 1) given.pair = std::move(draft.texts[1].text);
  return given;
}

EncoderInput encoder_input(const GivenText& text, const tokenizers::Tokenizer& tokenizer, int64_t most) {
  EncodedWords words;
  std::optional<std::vector<int64_t>> pair;
  for (const std::string& word : text.words) words.add(word, tokenizer, text.place);
  std::vector<int64_t> tokens = std::move(words.tokens);
  if (text.words.empty()) tokens = tokenizer.encode(text.text, text.place);
  if (text.pair) pair = tokenizer.encode(*text.pair, text.place);
  FramedTexts framed_texts = framed(tokenizer, std::move(tokens), std::move(pair), most);
  const tokenizers::Frame frame = tokenizer.frame(text.pair.has_value());
  if (framed_texts.tokens.empty()) throw Error(ExitCode::data, {.what = "the text is empty", .where = text.place});
  EncoderInput input{.tokens = std::move(framed_texts.tokens),
                     .second_type = static_cast<int64_t>(framed_texts.second),
                     .full_size = framed_texts.full_size};
  for (const int64_t begin : words.begins) {
    const int64_t place = begin < 0 ? -1 : begin + std::ssize(frame.before);
    if (place >= std::ssize(input.tokens) - std::ssize(frame.behind)) break;
    input.word_places.push_back(place);
  }
  return input;
}

}  // namespace

std::vector<GivenText> read_given_texts(const GivenTextFile& file) {
  data::TextOptions options;
  options.columns = file.columns;
  const auto builder =
      builder_for({.path = file.path, .model = {.field = kTokens, .target = file.target}, .text = &options});
  auto numbered = numbered_columns(file.columns, file.target);
  RecordFile wanted{.path = file.path, .columns = builder->columns(), .are_numbers = numbered.has_value()};
  if (file.target == Target::tags) wanted.columns.resize(1);  // words alone, which may stand alone in their lines
  AllRecords all{.records = records_of(wanted, file.target), .begins = {0}};
  if (numbered) {
    numbered->known_classes.insert(numbered->known_classes.end(), file.class_names.begin(), file.class_names.end());
    leave_out_names(all, *numbered);
  }
  if (all.records.empty()) throw Error(ExitCode::data, {.what = "there is no text", .where = file.path});
  std::vector<GivenText> texts;
  texts.reserve(all.records.size());
  for (const Record& record : all.records) texts.push_back(given_text(draft_of(record, file, *builder), file.target));
  return texts;
}

std::vector<EncoderInput> encoder_inputs(const std::vector<GivenText>& texts, const tokenizers::Tokenizer& tokenizer,
                                         int64_t most) {
  std::vector<EncoderInput> inputs(texts.size());
  datasets::parallel_for(texts.size(), [&](size_t i) { inputs[i] = encoder_input(texts[i], tokenizer, most); });
  return inputs;
}

}  // namespace gputrain::records
