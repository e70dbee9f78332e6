#include "text_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/options.hpp"
#include "labels.hpp"
#include "read_all.hpp"
#include "samples_by_use.hpp"

namespace gputrain::records {
namespace {

using PairRecord = nlohmann::ordered_json;

/// The usual names of a column, or the one that the job gives.
struct PairColumn {
  std::vector<std::string> names;

  PairColumn(const std::optional<std::string>& given, std::vector<std::string> usual)
      : names(given ? std::vector<std::string>{*given} : std::move(usual)) {}

  const PairRecord* in(const PairRecord& record) const {
    for (const std::string& name : names) {
      const auto found = record.find(name);
      if (found != record.end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
};

struct PairColumns {
  std::array<PairColumn, 3> texts;
  PairColumn number;

  explicit PairColumns(const data::ColumnNames& names)
      : texts{PairColumn{names.text, {"anchor", "sentence1", "text"}},
              PairColumn{names.text_pair, {"positive", "sentence2", "text_pair"}},
              PairColumn{names.negative, {"negative"}}},
        number(names.label, {"score", "label"}) {}

  std::vector<std::string> all() const {
    std::vector<std::string> all = number.names;
    for (const PairColumn& column : texts) all.insert(all.end(), column.names.begin(), column.names.end());
    return all;
  }
};

}  // namespace

struct TextPairs::Outcome {
  std::array<std::string, kMostTexts> texts;
  std::array<std::vector<int64_t>, kMostTexts> tokens;
  double number = 0;
  std::string problem;
};

TextPairs::TextPairs(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension) {
  const PairColumns columns((request.text != nullptr ? *request.text : data::TextOptions()).columns);
  const auto* train = samples_of<TextPairs>(request.train);
  const AllRecords all = read_all(request, read_records, extension, {.path = {}, .columns = columns.all()});
  const std::vector<Record>& records = all.records;
  files_ = all.files;
  // What the first good record has, all must have.
  const auto first = std::ranges::find_if(records, [](const Record& record) { return record.problem.empty(); });
  if (first != records.end()) {
    texts_ = columns.texts[2].in(first->value) != nullptr ? 3 : 2;
    has_numbers_ = columns.number.in(first->value) != nullptr;
  }
  if (train != nullptr) {
    texts_ = train->texts_;
    has_numbers_ = train->has_numbers_;
  }
  std::vector<Outcome> outcomes(records.size());
  for (size_t i = 0; i < records.size(); ++i) outcomes[i].problem = records[i].problem;
  for_each_good(outcomes, [&](size_t i) {
    for (size_t text = 0; text < texts_; ++text) {
      const PairRecord* value = columns.texts[text].in(records[i].value);
      if (value == nullptr || !value->is_string())
        throw Error(ExitCode::data, {.what = "no text in '" + columns.texts[text].names.front() + "'",
                                     .where = {},
                                     .hint = "data.text.columns: {text: NAME, text_pair: NAME}"});
      outcomes[i].texts[text] = value->get<std::string>();
    }
    if (!has_numbers_) return;
    const PairRecord* number = columns.number.in(records[i].value);
    if (number == nullptr)
      throw Error(ExitCode::data, {.what = "no number in '" + columns.number.names.front() + "', which others have"});
    outcomes[i].number = number_in(*number);
  });
  if (train == nullptr && is_tokenizer_built_from_texts(request)) {
    std::vector<std::string> texts;
    for (const Outcome& outcome : outcomes) texts.insert(texts.end(), outcome.texts.begin(), outcome.texts.end());
    tokenizer_ = tokenizer_for(request, texts);
  } else {
    tokenizer_ = tokenizer_for(request, {});
  }
  for_each_good(outcomes, [&](size_t i) {
    for (size_t text = 0; text < texts_; ++text)
      outcomes[i].tokens[text] = tokenizer_->encode(std::exchange(outcomes[i].texts[text], {}), records[i].place);
  });
  store(outcomes, records, request,
        train != nullptr              ? train->layout_.token_count()
        : request.sequence_length > 0 ? request.sequence_length
                                      : std::numeric_limits<int32_t>::max());
  if (train != nullptr) layout_ = train->layout_;
}

void TextPairs::store(std::vector<Outcome>& outcomes, const std::vector<Record>& records,
                      const data::DatasetRequest& request, int64_t most) {
  int64_t longest = 1, cut = 0, longest_uncut = 0;
  BadRecords bad{.count = 0, .of = std::ssize(outcomes)};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Outcome& outcome = outcomes[i];
    std::array<FramedTexts, kMostTexts> samples;
    bool is_cut = false;
    for (size_t text = 0; text < texts_ && outcome.problem.empty(); ++text) {
      samples[text] = framed(*tokenizer_, std::move(outcome.tokens[text]), {}, most);
      if (samples[text].tokens.empty()) outcome.problem = "a text is empty";
      is_cut = is_cut || samples[text].full_size > most;
      longest_uncut = std::max(longest_uncut, samples[text].full_size);
      longest = std::max(longest, std::ssize(samples[text].tokens));
    }
    numbers_.push_back(static_cast<float>(outcome.number));
    if (is_cut) ++cut;
    if (!outcome.problem.empty()) {
      if (bad.count++ == 0) {
        bad.first_what = outcome.problem;
        bad.first_where = records[i].place;
      }
      problems_[static_cast<int64_t>(i)] = {outcome.problem, records[i].place};
      samples = {};
    }
    for (size_t text = 0; text < texts_; ++text) stores_[text].add(samples[text]);
  }
  check_bad(bad, request);
  if (cut > 0)
    log::warning(
        fmt::format("{}: cut texts of {} of {} after {} tokens; the longest has {}; data.text.max_length sets "
                    "the limit",
                    request.path, grouped(cut), counted(size(), "sample"), grouped(most), grouped(longest_uncut)));
  content_hash_ = data::content_hash(static_cast<int64_t>(texts_) + 1, [&](int64_t part) {
    const auto text = static_cast<size_t>(part);
    return data::content_of(text < texts_ ? std::as_bytes(stores_[text].all())
                                          : std::as_bytes(std::span<const float>(numbers_)));
  });
  set_layout(longest);
}

void TextPairs::set_layout(int64_t longest) {
  constexpr std::array kNames{kTokens, kPairTokens, kNegativeTokens};
  for (size_t text = 0; text < texts_; ++text)
    layout_.fields.push_back({.name = kNames[text], .sizes = {longest}, .ragged = true});
  if (has_numbers_)
    layout_.fields.push_back({.name = kTarget, .type = at::kFloat, .fill = std::nan(""), .target = true});
  layout_.vocabulary = tokenizer_->vocabulary_size();
}

int64_t TextPairs::length(int64_t index) const {
  int64_t longest = 1;
  for (size_t text = 0; text < texts_; ++text) longest = std::max(longest, stores_[text].length(index));
  return longest;
}

void TextPairs::read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const {
  if (const auto problem = problems_.find(index); problem != problems_.end())
    throw Error(ExitCode::data, {.what = problem->second.first, .where = problem->second.second});
  for (size_t text = 0; text < texts_; ++text) {
    stores_[text].read(index, row.values<int64_t>(text), nullptr);
    row.set_count(text, stores_[text].length(index));
  }
  if (has_numbers_) *row.values<float>(texts_) = numbers_[static_cast<size_t>(index)];
}

std::string TextPairs::describe() const {
  int64_t tokens = 0;
  for (const TextStore& store : stores_) tokens += std::ssize(store.all());
  return fmt::format("{} of {}, {}, at most {} each{}", counted(size(), texts_ == 3 ? "triple" : "pair"), files_,
                     counted(tokens, "token"), grouped(layout_.token_count()), has_numbers_ ? ", a number each" : "");
}

}  // namespace gputrain::records
