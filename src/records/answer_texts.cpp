#include "answer_texts.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/options.hpp"
#include "read_all.hpp"
#include "samples_by_use.hpp"

namespace gputrain::records {
namespace {

enum AnswerFields : size_t { kFirstTokens, kFirstTarget, kSecondTokens, kSecondTarget, kGood };
enum PackedFields : size_t { kRowTokens, kRowTarget, kRowPositions, kRowTexts, kRowSamples, kRowGood };

data::TextOptions answer_options(const data::DatasetRequest& request) {
  const data::TextOptions options = request.text != nullptr ? *request.text : data::TextOptions();
  if (options.loss_on)
    throw Error(
        ExitCode::usage,
        {.what = "what counts of an answer is all of it", .where = "data.text.loss_on", .hint = "leave it out"});
  return options;
}

/// Whether anything that counts is left of a text that is cut.
bool counts_within(const std::vector<uint32_t>& stored, int64_t most) {
  Examples one;
  one.add(std::span(stored).first(std::min(stored.size(), static_cast<size_t>(most))));
  return one.learned_count(0) > 0;
}

}  // namespace

/// A sample while it is made, and why it is bad.
struct AnswerTexts::Sample {
  std::array<Dialogue, 2> dialogues;
  bool is_good = false;
  nlohmann::ordered_json record;
  std::array<LearnedText, 2> texts = {};
  std::array<std::vector<uint32_t>, 2> tokens = {};  // Example::stored()
  std::string place, problem;
};

AnswerTexts::AnswerTexts(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension)
    : is_rated_(request.model.use == TextUse::rating), packs_(answer_options(request).packing) {
  const data::TextOptions options = answer_options(request);
  const auto* train = samples_of<AnswerTexts>(request.train);
  AllRecords all =
      read_all(request, read_records, extension, {.path = {}, .columns = columns_of_answers(options.columns)});
  files_ = all.files;
  std::vector<Sample> samples = samples_in(all.records, request);
  render(samples, request);
  for_each_good(samples, [&](size_t i) {
    Sample& sample = samples[i];
    for (size_t text = 0; text < sample.texts.size(); ++text)
      sample.tokens[text] = example_of(sample.texts[text], *tokenizer_, sample.place).stored();
  });
  const int64_t most = train != nullptr              ? train->layout_.token_count()
                       : request.sequence_length > 0 ? request.sequence_length
                                                     : std::numeric_limits<int32_t>::max();
  store(samples, request, packs_ ? most / 2 : most);
  const bool is_set = train != nullptr || options.max_length.value.has_value();
  if (packs_) {
    pack_rows(most, is_set, train);
    return;
  }
  if (train != nullptr) layout_ = train->layout_;
}

/// Prompts and answers; of a bad record one bad sample.
std::vector<AnswerTexts::Sample> AnswerTexts::samples_in(std::vector<Record>& records,
                                                         const data::DatasetRequest& request) const {
  const data::ColumnNames names = answer_options(request).columns;
  std::vector<Sample> samples;
  for (Record& record : records) {
    nlohmann::ordered_json variables = nlohmann::ordered_json::object();
    for (const char* name : {"tools", "documents"})
      if (record.value.is_object() && record.value.contains(name)) variables[name] = record.value[name];
    const auto add = [&](Dialogue first, Dialogue second, bool is_good) {
      samples.push_back({.dialogues = {std::move(first), std::move(second)},
                         .is_good = is_good,
                         .record = variables,
                         .place = record.place,
                         .problem = {}});
    };
    try {
      if (!record.problem.empty()) throw Error(ExitCode::data, {.what = record.problem});
      if (is_rated_) {
        for (Rating& rating : ratings_in(record.value, names)) add(std::move(rating.dialogue), {}, rating.is_good);
      } else {
        Preference both = preference_in(record.value, names);
        add(std::move(both.chosen), std::move(both.rejected), true);
      }
    } catch (const Error& error) {
      samples.push_back({.dialogues = {}, .record = {}, .place = record.place, .problem = message_of(error)});
    }
    record.value = nullptr;
  }
  if (is_rated_) add_unrelated(samples);
  return samples;
}

/// Gives each prompt the answer of the good sample before it, where that is of the same kind, else its own; the first
/// one that of the last.
void AnswerTexts::add_unrelated(std::vector<Sample>& samples) {
  const auto is_usable = [](const Sample& sample) { return sample.problem.empty(); };
  const auto last = std::ranges::find_if(samples.rbegin(), samples.rend(), is_usable);
  if (last == samples.rend()) return;
  const nlohmann::ordered_json* before = &last->dialogues[0].answer;
  for (Sample& sample : samples) {
    if (!is_usable(sample)) continue;
    const Dialogue& own = sample.dialogues[0];
    sample.dialogues[1] = {own.prompt, before->is_array() == own.answer.is_array() ? *before : own.answer};
    before = &own.answer;
  }
}

/// Makes the texts, and finds the tokenizer or builds it from them.
void AnswerTexts::render(std::vector<Sample>& samples, const data::DatasetRequest& request) {
  const bool is_built = samples_of<AnswerTexts>(request.train) == nullptr && is_tokenizer_built_from_texts(request);
  if (!is_built) tokenizer_ = tokenizer_for(request, {});
  const RecordTexts texts(answer_options(request), tokenizer_ ? tokenizer_->folder() : std::filesystem::path());
  for_each_good(samples, [&](size_t i) {
    Sample& sample = samples[i];
    for (size_t text = 0; text < sample.texts.size(); ++text)
      sample.texts[text] = texts.answered(sample.dialogues[text], sample.record);
    sample.dialogues = {};
    sample.record = nullptr;
  });
  if (!is_built) return;
  std::vector<std::string> all;
  for (const Sample& sample : samples)
    for (const LearnedText& text : sample.texts) all.push_back(text.text);
  tokenizer_ = tokenizer_for(request, all);
}

void AnswerTexts::store(const std::vector<Sample>& samples, const data::DatasetRequest& request, int64_t most) {
  int64_t longest = 2, cut = 0, longest_uncut = 0;
  BadRecords bad{.count = 0, .of = std::ssize(samples)};
  for (const Sample& sample : samples) {
    std::string problem = sample.problem;
    for (size_t text = 0; text < sample.tokens.size() && problem.empty(); ++text)
      if (!counts_within(sample.tokens[text], most))
        problem = "nothing of an answer lies within the first " + counted(most, "token") + " (data.text.max_length)";
    if (!problem.empty()) {
      if (bad.count++ == 0) {
        bad.first_what = problem;
        bad.first_where = sample.place;
      }
      first_.add_bad({problem, sample.place});
      second_.add_bad({problem, sample.place});
      is_good_.push_back(0);
      continue;
    }
    bool is_cut = false;
    for (size_t text = 0; text < sample.tokens.size(); ++text) {
      const auto tokens = std::span(sample.tokens[text]);
      const auto kept = tokens.first(std::min(tokens.size(), static_cast<size_t>(most)));
      (text == 0 ? first_ : second_).add(kept);
      longest = std::max(longest, std::ssize(kept));
      longest_uncut = std::max(longest_uncut, std::ssize(tokens));
      is_cut = is_cut || kept.size() < tokens.size();
    }
    is_good_.push_back(sample.is_good ? 1 : 0);
    if (is_cut) ++cut;
  }
  check_bad(bad, request);
  if (cut > 0)
    log::warning(
        fmt::format("{}: cut answers of {} of {} after {} tokens; the longest has {}; data.text.max_length sets the "
                    "limit",
                    request.path, grouped(cut), counted(size(), "sample"), grouped(most), grouped(longest_uncut)));
  content_hash_ = hash_of_all();
  if (!packs_) set_layout(longest);
}

/// Of every token, and of where texts and rows end: what a model gave the answers is kept for this data alone.
uint64_t AnswerTexts::hash_of_all() const {
  uint64_t hash = 1;
  const auto add = [&hash](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    hash = mix(hash, stable_hash({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  };
  add(first_.raw());
  add(first_.ends());
  add(second_.raw());
  add(second_.ends());
  add(is_good_);
  add(rows_.samples);
  add(rows_.ends);
  return std::max<uint64_t>(hash, 1);
}

/// Rows of at most `capacity` tokens; of fewer if no sample needs them and the job does not ask for them.
void AnswerTexts::pack_rows(int64_t capacity, bool is_set, const AnswerTexts* train) {
  std::vector<int64_t> samples, lengths;
  for (int64_t i = 0; i < first_.size(); ++i) {
    if (first_.length(i) == 0) continue;
    samples.push_back(i);
    lengths.push_back(first_.length(i) + second_.length(i));
  }
  const int64_t longest = lengths.empty() ? 2 : *std::ranges::max_element(lengths);
  const int64_t size = is_set ? capacity : std::min(capacity, longest);
  rows_ = pack(lengths, size, train != nullptr ? train->layout_.fields[kRowSamples].sizes[0] : 0);
  for (int64_t& sample : rows_.samples) sample = samples[static_cast<size_t>(sample)];
  content_hash_ = hash_of_all();
  if (train != nullptr) {
    layout_ = train->layout_;
    return;
  }
  int64_t most = 1;
  for (int64_t row = 0; row < rows_.size(); ++row) most = std::max(most, std::ssize(rows_.row(row)));
  layout_.fields = {{.name = kTokens, .sizes = {size}},
                    {.name = kTarget, .sizes = {size}, .fill = static_cast<double>(kIgnoreIndex)},
                    {.name = kPositions, .sizes = {size}},
                    {.name = data::kTextOfToken, .sizes = {size}, .fill = -1},
                    {.name = data::kIsSample,
                     .sizes = {most},
                     .fill = static_cast<double>(kIgnoreIndex),
                     .target = true}};  // a target, because the samples of a row are what is counted
  if (is_rated_) layout_.fields.push_back({.name = data::kIsGood, .type = at::kFloat, .sizes = {most}});
  layout_.vocabulary = tokenizer_->vocabulary_size();
}

void AnswerTexts::set_layout(int64_t longest) {
  const std::array<const char*, 4> names{kTokens, kTarget, is_rated_ ? data::kUnrelatedTokens : kRejectedTokens,
                                         is_rated_ ? data::kUnrelatedTarget : kRejectedTarget};
  for (size_t field = 0; field < names.size(); ++field)
    layout_.fields.push_back({.name = names[field],
                              .sizes = {longest},
                              .fill = field % 2 == 1 ? static_cast<double>(kIgnoreIndex) : 0,
                              .ragged = true});
  if (is_rated_) layout_.fields.push_back({.name = data::kIsGood, .type = at::kFloat});
  layout_.vocabulary = tokenizer_->vocabulary_size();
}

int64_t AnswerTexts::length(int64_t index) const {
  if (packs_) return 0;
  return std::max({int64_t{1}, first_.length(index), second_.length(index)});
}

void AnswerTexts::read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const {
  if (packs_) return read_packed(index, row);
  if (first_.length(index) == 0) {
    const Examples::Problem& problem = first_.problem(index);
    throw Error(ExitCode::data, {.what = problem.what, .where = problem.where});
  }
  const auto write = [&](const Examples& from, size_t tokens, size_t target) {
    from.read(index, row.values<int64_t>(tokens), row.values<int64_t>(target));
    row.set_count(tokens, from.length(index));
    row.set_count(target, from.length(index));
  };
  write(first_, kFirstTokens, kFirstTarget);
  write(second_, kSecondTokens, kSecondTarget);
  if (is_rated_) *row.values<float>(kGood) = is_good_[static_cast<size_t>(index)];
}

void AnswerTexts::read_packed(int64_t index, const data::SampleRow& row) const {
  const auto& fields = layout_.fields;
  const auto samples = rows_.row(index);
  const int64_t size = fields[kRowTokens].sizes[0], most = fields[kRowSamples].sizes[0];
  auto *tokens = row.values<int64_t>(kRowTokens), *targets = row.values<int64_t>(kRowTarget),
       *positions = row.values<int64_t>(kRowPositions), *texts = row.values<int64_t>(kRowTexts),
       *is_sample = row.values<int64_t>(kRowSamples);
  int64_t at = 0, text = 0;
  for (const int64_t sample : samples) {
    for (const Examples* from : {&first_, &second_}) {
      const int64_t length = from->length(sample);
      from->read(sample, tokens + at, targets + at);
      std::iota(positions + at, positions + at + length, 0);
      std::fill_n(texts + at, length, text++);
      at += length;
    }
  }
  // The rest counts as one more text, of which nothing is learned.
  std::iota(positions + at, positions + size, 0);
  std::fill(tokens + at, tokens + size, 0);
  std::fill(targets + at, targets + size, kIgnoreIndex);
  std::fill(texts + at, texts + size, -1);
  std::fill_n(is_sample, most, kIgnoreIndex);
  std::fill_n(is_sample, samples.size(), 0);
  if (!is_rated_) return;
  float* good = row.values<float>(kRowGood);
  std::fill_n(good, most, 0.0F);
  for (const int64_t sample : samples) *good++ = is_good_[static_cast<size_t>(sample)];
}

std::string AnswerTexts::describe() const {
  const int64_t tokens = std::ssize(first_.raw()) + (is_rated_ ? 0 : std::ssize(second_.raw()));
  if (packs_)
    return fmt::format("{} of {} tokens, {:.1f} % full, with {} of {}", counted(size(), "row"),
                       grouped(layout_.token_count()),
                       100.0 * static_cast<double>(std::ssize(first_.raw()) + std::ssize(second_.raw())) /
                           static_cast<double>(size() * layout_.token_count()),
                       is_rated_ ? counted(std::ssize(rows_.samples), "rated answer")
                                 : counted(std::ssize(rows_.samples), "pair") + " of answers",
                       files_);
  return fmt::format("{} of {}, {}, at most {} each",
                     is_rated_ ? counted(size(), "rated answer") : counted(size(), "pair") + " of answers", files_,
                     counted(tokens, "token"), grouped(layout_.token_count()));
}

}  // namespace gputrain::records
