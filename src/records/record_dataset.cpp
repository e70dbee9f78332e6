#include "record_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/subset.hpp"

namespace gputrain::records {
namespace {

enum Fields : size_t { kTokensField, kTargetField, kPositionsField };

data::SampleLayout layout_of(const ExampleSource& source) {
  data::SampleLayout layout = data::SampleLayout::tokens(source.length, source.tokenizer->vocabulary_size());
  if (source.packs) {
    layout.fields.push_back({.name = kPositions, .sizes = {source.length}});
  } else {
    for (data::Field& field : layout.fields) field.ragged = true;
  }
  return layout;
}

std::vector<int64_t> all_of(const ExampleSource& source) {
  std::vector<int64_t> all(static_cast<size_t>(source.examples.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

RecordDataset::RecordDataset(std::shared_ptr<const ExampleSource> source) : RecordDataset(source, all_of(*source)) {}

RecordDataset::RecordDataset(std::shared_ptr<const ExampleSource> source, std::vector<int64_t> chosen)
    : source_(std::move(source)), chosen_(std::move(chosen)), layout_(layout_of(*source_)) {
  if (!source_->packs) return;
  std::erase_if(chosen_, [&](int64_t example) { return source_->examples.length(example) == 0; });
  std::vector<int64_t> lengths;
  for (const int64_t example : chosen_) lengths.push_back(source_->examples.length(example));
  rows_ = pack(lengths, source_->length);
}

int64_t RecordDataset::size() const { return source_->packs ? rows_.size() : std::ssize(chosen_); }

int64_t RecordDataset::length(int64_t index) const {
  if (source_->packs) return 0;
  return std::max<int64_t>(1, source_->examples.length(chosen_[static_cast<size_t>(index)]));
}

void RecordDataset::read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const {
  if (source_->packs) return read_packed(index, row);
  const int64_t example = chosen_[static_cast<size_t>(index)], length = source_->examples.length(example);
  if (length == 0) {
    const Examples::Problem& problem = source_->examples.problem(example);
    throw Error(ExitCode::data, {.what = problem.what, .where = problem.where});
  }
  source_->examples.read(example, row.values<int64_t>(kTokensField), row.values<int64_t>(kTargetField));
  row.set_count(kTokensField, length);
  row.set_count(kTargetField, length);
}

void RecordDataset::read_packed(int64_t index, const data::SampleRow& row) const {
  auto *tokens = row.values<int64_t>(kTokensField), *targets = row.values<int64_t>(kTargetField),
       *positions = row.values<int64_t>(kPositionsField);
  int64_t at = 0;
  for (const int64_t place : rows_.row(index)) {
    const int64_t example = chosen_[static_cast<size_t>(place)], length = source_->examples.length(example);
    source_->examples.read(example, tokens + at, targets + at);
    std::iota(positions + at, positions + at + length, 0);
    at += length;
  }
  // The rest counts as one more text, of which nothing is learned.
  std::iota(positions + at, positions + source_->length, 0);
  std::fill(tokens + at, tokens + source_->length, 0);
  std::fill(targets + at, targets + source_->length, kIgnoreIndex);
}

std::shared_ptr<const data::Dataset> RecordDataset::part(double begin, double end, data::Split) const {
  const auto all = std::ssize(chosen_);
  const auto place = [&](double fraction) { return std::llround(fraction * static_cast<double>(all)); };
  std::vector<int64_t> chosen;
  for (int64_t i = place(begin); i < place(end); ++i)
    chosen.push_back(chosen_[static_cast<size_t>(data::sample_of_split(i, all))]);
  if (chosen.empty()) throw Error(ExitCode::data, {.what = "less than one sample", .where = source_->files});
  std::ranges::sort(chosen);
  return std::make_shared<RecordDataset>(source_, std::move(chosen));
}

std::string RecordDataset::describe() const {
  int64_t tokens = 0, learned = 0;
  for (const int64_t example : chosen_) {
    tokens += source_->examples.length(example);
    learned += source_->examples.learned_count(example);
  }
  std::string text = fmt::format("{} of {}, {}, {} learned", counted(std::ssize(chosen_), "text"), source_->files,
                                 counted(tokens, "token"), grouped(learned));
  if (!source_->packs) return text + ", at most " + grouped(source_->length) + " each";
  const double room = static_cast<double>(rows_.size()) * static_cast<double>(source_->length);
  return text + fmt::format(", packed into {} of {}, {:.1f} % full", counted(rows_.size(), "row"),
                            grouped(source_->length), 100 * static_cast<double>(tokens) / room);
}

}  // namespace gputrain::records
