#include "row_reader.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/order.hpp"

namespace gputrain::data {
namespace {

constexpr uint64_t kReadStream = 2;  // 1 is the order's

std::string named(const std::string& what, int64_t sample) { return what + " (sample " + std::to_string(sample) + ")"; }

Error with_sample(const Error& error, int64_t sample) {
  Error::Parts parts = error.parts();
  parts.what = named(parts.what, sample);
  if (parts.hint.empty() && error.code() == ExitCode::data)
    parts.hint = "mend or remove it, or let data.max_bad_fraction pass over a few such samples";
  return Error(error.code(), std::move(parts));
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

RowReader::RowReader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      plan_(dataset_->size(), options.share, options.drop_last),
      samples_(dataset_->size()),
      input_bytes_(dataset_->layout().input_bytes()),
      target_count_(dataset_->layout().target_count()),
      seed_(options.seed),
      shuffle_(options.shuffle),
      augment_(options.augment),
      tolerant_(options.max_bad_fraction > 0) {}

Destination RowReader::row(const Destination& batch, int64_t row) const noexcept {
  return {batch.inputs + static_cast<size_t>(row) * input_bytes_,
          batch.targets + static_cast<size_t>(row) * target_count_};
}

void RowReader::clear(const Destination& to) const noexcept {
  std::memset(to.inputs, 0, input_bytes_);
  std::fill_n(to.targets, target_count_, kIgnoreIndex);
}

/// Rows that only fill the shape are real samples in training, so that batch statistics stay those of the data.
void RowReader::fill_uncounted(int64_t sample, const ReadContext& context, const Destination& to) const noexcept {
  if (!augment_) return clear(to);
  try {
    dataset_->read(sample, context, to.inputs, to.targets);
    std::fill_n(to.targets, target_count_, kIgnoreIndex);
  } catch (...) {
    clear(to);  // reported where the sample counts
  }
}

void RowReader::read_counted(int64_t sample, const ReadContext& context, const Destination& to, int64_t row,
                             ReadOutcome& outcome) const {
  try {
    dataset_->read(sample, context, to.inputs, to.targets);
    outcome.weight +=
        std::count_if(to.targets, to.targets + target_count_, [](int64_t t) { return t != kIgnoreIndex; });
  } catch (const Error& error) {
    if (!tolerant_ || error.code() != ExitCode::data) throw with_sample(error, sample);
    clear(to);
    ++outcome.usage.unreadable;
    outcome.bad.push_back({row, {sample, context.epoch, error.what()}});
  } catch (const std::logic_error& bug) {  // of a format: std::stof throws these
    throw std::logic_error(named(bug.what(), sample));
  } catch (const std::runtime_error& failure) {
    throw std::runtime_error(named(failure.what(), sample));
  }
}

ReadOutcome RowReader::read(int64_t index, int64_t begin, int64_t end, const Destination& to,
                            const std::atomic<bool>& stop) const noexcept {
  const MicroBatchPlan batch = plan_.micro_batch(index);
  const Permutation order = order_of_epoch(seed_, batch.epoch, samples_);
  const ReadContext context{mix(seed_, kReadStream), batch.epoch, augment_};
  ReadOutcome outcome;
  for (int64_t i = begin; i < end && !stop.load(std::memory_order_relaxed); ++i) {
    const int64_t position = (batch.first_position + i) % samples_;
    const int64_t sample = shuffle_ ? order(position) : position;
    try {
      if (i < batch.counted) {
        read_counted(sample, context, row(to, i), i, outcome);
        outcome.usage.add({1, usage_hash(batch.epoch, sample)});
      } else {
        fill_uncounted(sample, context, row(to, i));
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
