#include "gputrain/data/loader.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "batch_source.hpp"
#include "counted_targets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "length_classes.hpp"
#include "row_reader.hpp"
#include "upload.hpp"

namespace gputrain::data {

namespace {

/// Returns the first `rows` rows of a field; only the first `counted` count. A ragged field is cut to `length`, which
/// holds all samples that count: rows that only fill the batch have tokens, but no targets, and both must have one
/// length.
BatchField first_rows(const Field& field, const at::Tensor& values, const at::Tensor& counts, int64_t rows,
                      int64_t counted, int64_t length, bool is_full) {
  BatchField used{field.name, values.narrow(0, 0, rows), at::Tensor(), is_full};
  if (!field.ragged) return used;
  used.counts = counts.narrow(0, 0, rows);
  used.counts.narrow(0, counted, rows - counted).clamp_max_(length);
  const at::Tensor cut = used.values.narrow(1, 0, length);
  // A copy in pageable memory would not be uploaded while the host goes on.
  used.values = cut.is_contiguous() ? cut : at::empty(cut.sizes(), values.options().pinned_memory(values.is_pinned()));
  if (!cut.is_contiguous()) used.values.copy_(cut);
  return used;
}

}  // namespace

struct Loader::Impl {
  Impl(std::shared_ptr<const Dataset> given, LoaderOptions wanted, LoaderState start)
      : dataset(std::move(given)), options(std::move(wanted)), reader(dataset, options, start.from) {
    bad_epoch = start.from.epoch;
    bad_in_epoch = static_cast<double>(start.unreadable) / options.partition.world_size;
    if (!options.device.is_cpu()) uploader.emplace(options.device);
    if (options.length_classes > 0) {
      classes = length_classes(dataset, options);
      counted_targets = CountedTargets(dataset, options, classes);
    }
    for (const auto& [pass, of_pass] : classes)
      if (is_full(*dataset, pass)) full_passes.insert(pass);
  }

  void start();
  Batch take(StepData& next);
  double loss_weight_of(const Batch& batch) const;
  void add_mixed_fields(const Mixing& mixing, Batch& batch) const;
  void note_bad(std::vector<ReadOutcome::BadRow> bad);

  std::shared_ptr<const Dataset> dataset;
  LoaderOptions options;
  int64_t step = 0;  // steps returned
  RowReader reader;
  std::map<int, LengthClasses> classes;  // classes by pass; empty: a ragged field is as long as its longest sample
  std::set<int> full_passes;             // passes where all samples have the maximum length, with classes
  CountedTargets counted_targets;        // empty without classes
  std::optional<Uploader> uploader;      // if the device is a GPU
  std::unique_ptr<BatchSource> source;   // empty until started; declared after the reader, which it uses
  int64_t next_batch = 0;
  int64_t bad_epoch = 0;
  double bad_in_epoch = 0;  // bad samples of this rank, with its share of those before its start
};

void Loader::Impl::start() {
  if (source) return;
  const int64_t per_step = reader.plan().micro_batches_per_step();
  ReadAhead ahead;
  ahead.workers = options.num_workers;
  ahead.slots = std::max<int64_t>(options.prefetch_batches, per_step);
  if (options.steps > 0) ahead.end = std::min(options.steps, INT64_MAX / per_step) * per_step;
  ahead.timeout_seconds = options.timeout_seconds;
  ahead.pinned = options.pin_memory && options.device.is_cuda();
  source = make_batch_source(reader, ahead);
}

void Loader::Impl::note_bad(std::vector<ReadOutcome::BadRow> bad) {
  std::sort(bad.begin(), bad.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  for (const auto& [row, sample] : bad) {
    if (options.on_bad_sample) options.on_bad_sample(sample);
    if (sample.epoch != std::exchange(bad_epoch, sample.epoch)) bad_in_epoch = 0;
    ++bad_in_epoch;
    const double share = static_cast<double>(dataset->size()) / options.partition.world_size;
    if (bad_in_epoch <= std::ceil(options.max_bad_fraction * share)) continue;
    throw Error(ExitCode::data,
                {.what = counted(std::llround(bad_in_epoch), "sample") + " of epoch " + std::to_string(sample.epoch) +
                         " cannot be read, more than data.max_bad_fraction allows; the last one: " + sample.message});
  }
}

/// Adds the fields for the loss of mixed images, also to batches that are not mixed: all batches have the same fields.
void Loader::Impl::add_mixed_fields(const Mixing& mixing, Batch& batch) const {
  const at::Tensor targets = batch.fields[reader.target_field()].values;
  const bool is_pinned = options.pin_memory && options.device.is_cuda();
  const auto uninitialised = [&](at::ScalarType type) {
    return at::empty(targets.sizes(), at::TensorOptions().dtype(type).pinned_memory(is_pinned));
  };
  at::Tensor others = uninitialised(at::kLong).fill_(kIgnoreIndex);
  others.narrow(0, 0, batch.samples).copy_(targets.narrow(0, 0, batch.samples).flip({0}));
  batch.fields.push_back({kMixedTarget, std::move(others)});
  batch.fields.push_back({kMixedPart, uninitialised(at::kDouble).fill_(mixing.part)});
}

/// Ignores mixing, which does not change the sum: each target loses in one row what it gains in another.
double Loader::Impl::loss_weight_of(const Batch& batch) const {
  if (options.class_weights.empty()) return static_cast<double>(batch.weight);
  const at::Tensor targets = batch.fields[reader.target_field()].values;
  const int64_t* target = targets.const_data_ptr<int64_t>();
  double sum = 0;
  for (int64_t row = 0; row < batch.samples; ++row)
    if (target[row] != kIgnoreIndex) sum += options.class_weights.at(static_cast<size_t>(target[row]));
  return sum;
}

Batch Loader::Impl::take(StepData& next) {
  FilledBatch filled = source->next();
  next.usage.add(filled.outcome.usage);
  note_bad(std::move(filled.outcome.bad));
  const int64_t index = next_batch++;
  const MicroBatchPlan plan = reader.plan().micro_batch(index);
  Batch batch;
  const int64_t rows = options.pads ? plan.rows : plan.counted;
  const auto& fields = dataset->layout().fields;
  const std::vector<int64_t> lengths = lengths_of(reader, classes, index, filled.buffers);
  for (size_t i = 0; i < fields.size(); ++i) {
    batch.fields.push_back(first_rows(fields[i], filled.buffers.values[i], filled.buffers.counts[i], rows, plan.counted,
                                      lengths[i], full_passes.contains(fields[i].pass)));
    batch.fields.back().most_counted = counted_targets.most_of(i, batch.fields.back().values);
  }
  batch.samples = plan.counted;
  batch.samples_on_all_ranks = plan.counted_on_all_ranks;
  batch.first_position = plan.first_position;
  batch.weight = filled.outcome.weight;
  batch.texts_in_row = dataset->layout().texts_in_row;
  batch.longest_text = dataset->layout().longest_text;
  next.loss_weights.push_back(loss_weight_of(batch));
  if (reader.mixes()) add_mixed_fields(reader.mixing_of(index), batch);
  return uploader ? uploader->start(batch) : batch;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, LoaderState start)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(options), start)) {}

Loader::~Loader() {
  if (!impl_->source || !impl_->source->has_given_up()) return;
  // Threads that are stuck in storage still use the loader: leak it, the process ends soon.
  static auto* const left_behind = new std::list<std::unique_ptr<Impl>>;
  left_behind->push_back(std::move(impl_));
}

int64_t Loader::steps_per_epoch() const noexcept { return impl_->reader.plan().steps_per_epoch(); }

int64_t Loader::micro_batches_per_step() const noexcept { return impl_->reader.plan().micro_batches_per_step(); }

StepData Loader::next_step() {
  impl_->start();
  StepData step;
  step.epoch = impl_->reader.plan().micro_batch(impl_->next_batch).epoch;
  step.ends_epoch = impl_->reader.plan().ends_epoch(impl_->step);
  for (int64_t i = 0; i < micro_batches_per_step(); ++i) {
    step.micro_batches.push_back(impl_->take(step));
    step.weight += step.micro_batches.back().weight;
    step.samples += step.micro_batches.back().samples;
  }
  ++impl_->step;
  return step;
}

}  // namespace gputrain::data
