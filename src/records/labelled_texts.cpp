#include "labelled_texts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/options.hpp"
#include "read_all.hpp"
#include "samples_by_use.hpp"

namespace gputrain::records {
namespace {

using Json = nlohmann::ordered_json;

/// The columns that the job names, or the usual ones. Names that are all numbers count the columns of a table.
struct LabelColumns {
  std::string text = "text", pair = "text_pair", label = "label";
  bool names_pair = false;  // the job does, so that each record must have it
  bool are_numbers = false;

  explicit LabelColumns(const data::ColumnNames& names) {
    text = names.text.value_or(text);
    pair = names.text_pair.value_or(pair);
    label = names.label.value_or(label);
    names_pair = names.text_pair.has_value();
    const auto is_number = [](const std::optional<std::string>& name) {
      return name && !name->empty() && name->find_first_not_of("0123456789") == std::string::npos;
    };
    are_numbers = is_number(names.text) && is_number(names.label) && (!names_pair || is_number(names.text_pair));
  }
};

const Json& value_in(const Json& record, const std::string& column) {
  return value_of_column(
      record, column,
      "data.text.columns: {text: NAME, label: NAME}; by number where the first row does not name them: "
      "{text: 0, label: 1}");
}

const std::string& labelled_text_in(const Json& record, const std::string& column) {
  const Json& value = value_in(record, column);
  if (value.is_string()) return value.get_ref<const std::string&>();
  throw Error(ExitCode::data, {.what = "'" + column + "' is no text but " + std::string(value.type_name())});
}

}  // namespace

struct LabelledTexts::Outcome {
  std::string text;
  std::optional<std::string> pair;
  std::vector<std::string> classes;  // named in the label
  double number = 0;
  std::vector<int64_t> tokens;
  std::optional<std::vector<int64_t>> pair_tokens;
  std::string problem;
};

namespace {

/// Whether the first row of a table names its columns: its label is not one of the others', or no number.
bool is_header(const std::vector<Record>& records, const std::string& label, TextUse use) {
  if (records.size() < 2 || !records.front().problem.empty()) return false;
  const auto label_of = [&](const Record& record) -> std::optional<std::string> {
    const auto found = record.value.find(label);
    if (!record.problem.empty() || found == record.value.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  const auto first = label_of(records.front());
  if (!first) return false;
  if (use == TextUse::number) {
    try {
      number_in(*first);
      return false;
    } catch (const Error&) {
      return true;
    }
  }
  return std::none_of(records.begin() + 1, records.end(),
                      [&](const Record& record) { return label_of(record) == first; });
}

}  // namespace

LabelledTexts::LabelledTexts(const data::DatasetRequest& request, ReadRecords read_records,
                             const std::string& extension)
    : use_(request.model.use) {
  const data::TextOptions options = request.text != nullptr ? *request.text : data::TextOptions();
  const LabelColumns columns(options.columns);
  const auto* train = samples_of<LabelledTexts>(request.train);
  AllRecords all = read_all(
      request, read_records, extension,
      {.path = {}, .columns = {columns.text, columns.pair, columns.label}, .are_numbers = columns.are_numbers});
  std::vector<Record>& records = all.records;
  files_ = all.files;
  if (columns.are_numbers && is_header(records, columns.label, use_)) records.erase(records.begin());

  std::vector<Outcome> outcomes(records.size());
  for (size_t i = 0; i < records.size(); ++i) outcomes[i].problem = records[i].problem;
  for_each_good(outcomes, [&](size_t i) {
    const Json& record = records[i].value;
    outcomes[i].text = labelled_text_in(record, columns.text);
    const auto pair = record.find(columns.pair);
    if (columns.names_pair || (pair != record.end() && !pair->is_null()))
      outcomes[i].pair = labelled_text_in(record, columns.pair);
  });
  read_labels(records, outcomes, columns.label, train);
  if (train == nullptr && is_tokenizer_built_from_texts(request)) {
    std::vector<std::string> texts;
    for (const Outcome& outcome : outcomes) {
      texts.push_back(outcome.text);
      if (outcome.pair) texts.push_back(*outcome.pair);
    }
    tokenizer_ = tokenizer_for(request, texts);
  } else {
    tokenizer_ = tokenizer_for(request, {});
  }
  for_each_good(outcomes, [&](size_t i) {
    outcomes[i].tokens = tokenizer_->encode(std::exchange(outcomes[i].text, {}), records[i].place);
    if (outcomes[i].pair)
      outcomes[i].pair_tokens = tokenizer_->encode(*std::exchange(outcomes[i].pair, {}), records[i].place);
  });
  store(records, outcomes, request, train);
}

/// Classes of the training data are those that its labels name; other data must keep to them.
void LabelledTexts::read_labels(const std::vector<Record>& records, std::vector<Outcome>& outcomes,
                                const std::string& column, const LabelledTexts* train) {
  for_each_good(outcomes, [&](size_t i) {
    const Json& label = value_in(records[i].value, column);
    if (use_ == TextUse::number) outcomes[i].number = number_in(label);
    if (use_ == TextUse::label) outcomes[i].classes = {class_named_in(label)};
    if (use_ == TextUse::labels) outcomes[i].classes = classes_named_in(label);
  });
  if (use_ == TextUse::number) return;
  std::vector<std::string> names;
  if (train != nullptr) {
    names = train->classes_;
  } else {
    for (const Outcome& outcome : outcomes) names.insert(names.end(), outcome.classes.begin(), outcome.classes.end());
  }
  const ClassNames classes(std::move(names));
  classes_ = classes.names();
  if (use_ == TextUse::labels) columns_ = std::max<int64_t>(1, std::ssize(classes_));
  targets_.assign(outcomes.size() * static_cast<size_t>(columns_), 0);
  for_each_good(outcomes, [&](size_t i) {
    for (const std::string& name : outcomes[i].classes) {
      const int64_t number = classes.number_of(name);
      if (use_ == TextUse::labels) {
        targets_[i * static_cast<size_t>(columns_) + static_cast<size_t>(number)] = 1;
      } else {
        targets_[i] = static_cast<float>(number);
      }
    }
  });
}

/// Frames and cuts the texts, and notes those that cannot be used.
void LabelledTexts::store(const std::vector<Record>& records, std::vector<Outcome>& outcomes,
                          const data::DatasetRequest& request, const LabelledTexts* train) {
  if (use_ == TextUse::number) {
    for (const Outcome& outcome : outcomes) targets_.push_back(static_cast<float>(outcome.number));
  }
  const int64_t most = train != nullptr              ? train->layout_.token_count()
                       : request.sequence_length > 0 ? request.sequence_length
                                                     : std::numeric_limits<int32_t>::max();
  int64_t longest = 1, cut = 0, longest_uncut = 0;
  bool has_pairs = false;
  BadRecords bad{.count = 0, .of = std::ssize(outcomes)};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Outcome& outcome = outcomes[i];
    has_pairs = has_pairs || outcome.pair_tokens.has_value();
    FramedTexts texts;
    if (outcome.problem.empty()) {
      texts = framed(*tokenizer_, std::move(outcome.tokens), std::move(outcome.pair_tokens), most);
      if (texts.tokens.empty()) outcome.problem = "the text is empty";
    }
    if (!outcome.problem.empty()) {
      if (bad.count++ == 0) {
        bad.first_what = outcome.problem;
        bad.first_where = records[i].place;
      }
      problems_[static_cast<int64_t>(i)] = {outcome.problem, records[i].place};
      texts_.add_bad();
      continue;
    }
    const auto size = std::ssize(texts.tokens);
    longest = std::max(longest, size);
    if (texts.full_size > size) ++cut;
    longest_uncut = std::max(longest_uncut, texts.full_size);
    texts_.add(texts);
  }
  check_bad(bad, request);
  if (cut > 0)
    log::warning(
        fmt::format("{}: cut {} of {} after {} tokens; the longest has {}; data.text.max_length sets the limit",
                    request.path, grouped(cut), counted(size(), "sample"), grouped(most), grouped(longest_uncut)));
  content_hash_ = data::content_hash(2, [&](int64_t part) {
    return data::content_of(part == 0 ? std::as_bytes(texts_.all()) : std::as_bytes(std::span<const float>(targets_)));
  });
  set_layout(train, longest, has_pairs);
}

void LabelledTexts::set_layout(const LabelledTexts* train, int64_t longest, bool has_pairs) {
  if (train != nullptr) {
    layout_ = train->layout_;
    return;
  }
  layout_.fields = {{.name = kTokens, .sizes = {longest}, .ragged = true}};
  if (has_pairs && tokenizer_->frame(true).second_type != 0)
    layout_.fields.push_back({.name = kTokenTypes, .sizes = {longest}, .ragged = true});
  data::Field target{.name = kTarget, .fill = kIgnoreIndex, .target = true};
  if (use_ != TextUse::label) {
    target.type = at::kFloat;
    target.fill = std::nan("");
    if (use_ == TextUse::labels) target.sizes = {columns_};
  }
  layout_.fields.push_back(std::move(target));
  layout_.num_classes = use_ == TextUse::number ? 1 : std::ssize(classes_);
  layout_.vocabulary = tokenizer_->vocabulary_size();
}

int64_t LabelledTexts::length(int64_t index) const { return std::max<int64_t>(1, texts_.length(index)); }

void LabelledTexts::read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const {
  if (const auto problem = problems_.find(index); problem != problems_.end())
    throw Error(ExitCode::data, {.what = problem->second.what, .where = problem->second.where});
  const size_t target = layout_.fields.size() - 1;
  const bool has_types = target == 2;
  texts_.read(index, row.values<int64_t>(0), has_types ? row.values<int64_t>(1) : nullptr);
  for (size_t field = 0; field < target; ++field) row.set_count(field, texts_.length(index));
  const auto at = static_cast<size_t>(index * columns_);
  if (use_ == TextUse::label) {
    *row.values<int64_t>(target) = static_cast<int64_t>(targets_[at]);
  } else {
    std::copy_n(targets_.begin() + static_cast<std::ptrdiff_t>(at), columns_, row.values<float>(target));
  }
}

std::optional<int64_t> LabelledTexts::class_of(int64_t index) const {
  if (use_ != TextUse::label || problems_.contains(index)) return std::nullopt;
  return static_cast<int64_t>(targets_[static_cast<size_t>(index)]);
}

std::string LabelledTexts::describe() const {
  std::string text = fmt::format("{} of {}, {}, at most {} each", counted(size(), "text"), files_,
                                 counted(std::ssize(texts_.all()), "token"), grouped(layout_.token_count()));
  return use_ == TextUse::number ? text + ", a number each" : text + ", " + counted(std::ssize(classes_), "class");
}

}  // namespace gputrain::records
