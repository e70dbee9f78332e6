#include "row_reader.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ops/full.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::data {
namespace {

constexpr uint64_t kReadStream = 2, kMixStream = 3;  // stream 1 is used for the order

std::string named(const std::string& what, int64_t sample) { return what + " (sample " + std::to_string(sample) + ")"; }

Error with_sample(const Error& error, int64_t sample) {
  Error::Parts parts = error.parts();
  parts.what = named(parts.what, sample);
  if (parts.hint.empty() && error.code() == ExitCode::data)
    parts.hint = "repair or remove it, or set data.max_bad_fraction to skip a few such samples";
  return Error(error.code(), std::move(parts));
}

/// Checks targets here, because a device could not say which sample is wrong.
void check_classes(std::span<const int64_t> targets, int64_t classes) {
  const auto wrong =
      std::ranges::find_if(targets, [classes](int64_t t) { return t != kIgnoreIndex && (t < 0 || t >= classes); });
  if (wrong != targets.end())
    throw Error(ExitCode::data, {.what = "target " + std::to_string(*wrong) + " is not one of " +
                                         std::to_string(classes) + " classes"});
}

/// Returns the bytes of one element of `type` with this value.
std::vector<std::byte> element_of(at::ScalarType type, double value) {
  const at::Tensor element = at::full({1}, value, type);
  const auto* bytes = static_cast<const std::byte*>(element.const_data_ptr());
  return {bytes, bytes + element.element_size()};
}

}  // namespace

void ReadOutcome::add(ReadOutcome other) {
  weight += other.weight;
  usage.add(other.usage);
  std::move(other.bad.begin(), other.bad.end(), std::back_inserter(bad));
  if (other.error && (!error || other.error_row < error_row)) {
    error = std::move(other.error);
    error_row = other.error_row;
  }
}

RowReader::RowReader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, Position from)
    : dataset_(std::move(dataset)),
      plan_(dataset_->size(), options.partition, options.drop_last, from),
      samples_(dataset_->size()),
      classes_(dataset_->layout().outputs),
      seed_(options.seed),
      repeats_(options.augment ? options.repeats : 1),
      shuffle_(options.shuffle),
      augment_(options.augment),
      tolerant_(options.max_bad_fraction > 0),
      by_length_(dataset_->length(0) > 0) {
  for (const Field& field : dataset_->layout().fields) {
    const int64_t most = field.ragged ? field.sizes.front() : 1;
    if (field.target && !weighed_ && field.type == at::kLong) weighed_ = fields_.size();
    fields_.push_back({.fill = element_of(field.type, field.fill),
                       .most = most,
                       .entry = field.numel() / most,
                       .ragged = field.ragged,
                       .target = field.target});
  }
  const bool has_mixable_samples = dataset_->layout().is_image() && weighed_ && fields_[*weighed_].entry == 1;
  if (options.augment && has_mixable_samples) mix_ = options.mix;
}

/// Fills the row with the fill value from entry `first` on.
void RowReader::clear(size_t field, const SampleRow& row, int64_t first) const noexcept {
  const FieldFacts& facts = fields_[field];
  const size_t width = facts.fill.size(), begin = static_cast<size_t>(first * facts.entry) * width;
  const size_t end = static_cast<size_t>(facts.most * facts.entry) * width;
  std::byte* const bytes = row.bytes(field);
  const bool all_equal = std::ranges::all_of(facts.fill, [&](std::byte each) { return each == facts.fill.front(); });
  if (all_equal) {
    std::memset(bytes + begin, static_cast<int>(facts.fill.front()), end - begin);
  } else {
    for (size_t at = begin; at < end; at += width) std::memcpy(bytes + at, facts.fill.data(), width);
  }
  if (facts.ragged && first == 0) row.set_count(field, 0);
}

/// Reads a sample and pads ragged fields after their last entry.
void RowReader::read_sample(int64_t sample, const ReadContext& context, const SampleRow& to) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].ragged) to.set_count(i, 0);
  }
  dataset_->read(sample, context, to);
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!fields_[i].ragged) continue;
    const int64_t count = to.count(i);
    GPUTRAIN_ASSERT(count >= 0 && count <= fields_[i].most, "a sample has " + std::to_string(count) + " entries of '" +
                                                                dataset_->layout().fields[i].name + "'");
    clear(i, to, count);
    to.set_count(i, count);
  }
}

/// Fills a padding row. In training it holds a real sample, for a user's own model that computes batch statistics by
/// itself; so does a row of several texts, whose positions tell the texts apart.
void RowReader::fill_uncounted(int64_t sample, const ReadContext& context, const SampleRow& to) const noexcept {
  const bool holds_sample = augment_ || dataset_->layout().texts_in_row > 0;
  bool is_read = false;
  try {
    if (holds_sample) read_sample(sample, context, to);
    is_read = holds_sample;
  } catch (...) {
    // Ignored: reported when this sample is read as a counted one.
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!is_read || fields_[i].target) clear(i, to);
  }
}

/// Returns the number of targets of the sample that count.
int64_t RowReader::weight_of(const SampleRow& row) const {
  if (!weighed_) return 1;
  const FieldFacts& facts = fields_[*weighed_];
  const int64_t entries = facts.ragged ? row.count(*weighed_) : facts.most;
  const std::span targets(row.values<int64_t>(*weighed_), static_cast<size_t>(entries * facts.entry));
  if (classes_ > 0) check_classes(targets, classes_);
  return std::ranges::count_if(targets, [](int64_t t) { return t != kIgnoreIndex; });
}

void RowReader::read_counted(int64_t sample, const ReadContext& context, const SampleRow& to, int64_t row,
                             ReadOutcome& outcome) const {
  try {
    read_sample(sample, context, to);
    outcome.weight += weight_of(to);
  } catch (const Error& error) {
    if (!tolerant_ || error.code() != ExitCode::data) throw with_sample(error, sample);
    for (size_t i = 0; i < fields_.size(); ++i) clear(i, to);
    ++outcome.usage.unreadable;
    outcome.bad.push_back({row, {sample, context.epoch, error.what()}});
  } catch (const std::logic_error& bug) {  // from a format: std::stof throws these
    throw std::logic_error(named(bug.what(), sample));
  } catch (const std::runtime_error& failure) {
    throw std::runtime_error(named(failure.what(), sample));
  }
}

SampleOrder RowReader::order_of(int64_t epoch) const noexcept { return {seed_, epoch, samples_, shuffle_, repeats_}; }

/// Returns the context of a sample's copy: each is augmented by a stream of its own.
ReadContext RowReader::context_of(int64_t copy, int64_t epoch) const noexcept {
  const uint64_t seed = mix(seed_, kReadStream);
  return {copy == 0 ? seed : mix(seed, static_cast<uint64_t>(copy)), epoch, augment_};
}

/// Returns the samples of a step, the longest first: those of a micro-batch, on all ranks, then differ little in length
/// and need little padding. A step still has the samples that the order gives it.
std::vector<int64_t> RowReader::samples_by_length(int64_t index, const SampleOrder& order) const {
  const auto [begin, end] = plan_.positions_of_step(index);
  std::vector<std::pair<int64_t, int64_t>> lengths;  // negative, and the sample
  for (int64_t position = begin; position < end; ++position) {
    const int64_t sample = order(position);
    lengths.emplace_back(-dataset_->length(sample), sample);
  }
  std::ranges::sort(lengths);
  std::vector<int64_t> samples;
  for (const auto& [length, sample] : lengths) samples.push_back(sample);
  return samples;
}

int64_t RowReader::longest_on_all_ranks(int64_t index, int pass) const {
  if (!by_length_) return 0;
  const MicroBatchPlan batch = plan_.micro_batch(index);
  const std::vector<int64_t> sorted = samples_by_length(index, order_of(batch.epoch));
  int64_t longest = 1;
  for (int64_t i = batch.first_in_step; i < batch.first_in_step + batch.counted_on_all_ranks; ++i)
    longest = std::max(longest, dataset_->length_of_pass(sorted[static_cast<size_t>(i)], pass));
  return longest;
}

Mixing RowReader::mixing_of(int64_t index) const noexcept {
  const MicroBatchPlan batch = plan_.micro_batch(index);
  if (mix_.off_epoch > 0 && batch.epoch >= mix_.off_epoch) return {};
  const uint64_t seed = mix(mix(seed_, kMixStream), static_cast<uint64_t>(batch.epoch));
  RandomStream random(seed, static_cast<uint64_t>(batch.first_position));
  const auto& sizes = dataset_->layout().input().sizes;
  return draw_mixing(mix_, random, sizes[0], sizes[1]);
}

void RowReader::complete(int64_t index, const BatchMemory& to) const noexcept {
  if (!mixes()) return;
  const Mixing mixing = mixing_of(index);
  if (mixing.part == 1) return;
  const auto& sizes = dataset_->layout().input().sizes;
  mix_rows(mixing, SampleRow(to, 0).values<uint8_t>(0), plan_.micro_batch(index).counted, sizes[0], sizes[1], sizes[2]);
}

ReadOutcome RowReader::read(int64_t index, int64_t begin, int64_t end, const BatchMemory& to,
                            const std::atomic<bool>& stop) const noexcept {
  const MicroBatchPlan batch = plan_.micro_batch(index);
  const SampleOrder order = order_of(batch.epoch);
  const int64_t step_begin = plan_.positions_of_step(index).begin;
  const std::vector<int64_t> sorted = by_length_ ? samples_by_length(index, order) : std::vector<int64_t>();
  ReadOutcome outcome;
  for (int64_t i = begin; i < end && !stop.load(std::memory_order_relaxed); ++i) {
    const int64_t position = (batch.first_position + i) % samples_;
    const bool is_sorted = by_length_ && i < batch.counted;
    const int64_t sample = is_sorted ? sorted[static_cast<size_t>(position - step_begin)] : order(position);
    const ReadContext context = context_of(order.copy(position), batch.epoch);
    try {
      if (i < batch.counted) {
        read_counted(sample, context, SampleRow(to, i), i, outcome);
        outcome.usage.add({1, usage_hash(batch.epoch, sample)});
      } else {
        fill_uncounted(sample, context, SampleRow(to, i));
      }
    } catch (...) {
      outcome.error = std::current_exception();
      outcome.error_row = i;
      break;
    }
  }
  return outcome;
}

}  // namespace gputrain::data
