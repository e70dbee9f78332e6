#include "gputrain/setup/references.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/referenced_samples.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::app {
namespace {

constexpr const char *kSample = "sample", *kRows = "reference", *kBeginning = "beginning";

/// Dataset with the number of each sample; -1 for padding.
class NumberedSamples final : public data::Dataset {
 public:
  explicit NumberedSamples(std::shared_ptr<const data::Dataset> samples)
      : samples_(std::move(samples)), layout_(samples_->layout()) {
    layout_.fields.push_back({.name = kSample, .fill = -1});
  }

  int64_t size() const override { return samples_->size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override {
    samples_->read(index, context, row);
    *row.values<int64_t>(layout_.fields.size() - 1) = index;
  }
  int64_t length(int64_t index) const override { return samples_->length(index); }
  int64_t length_of_pass(int64_t index, int pass) const override { return samples_->length_of_pass(index, pass); }
  bool is_cheap_to_read() const override { return samples_->is_cheap_to_read(); }
  std::string describe() const override { return samples_->describe(); }

 private:
  std::shared_ptr<const data::Dataset> samples_;
  data::SampleLayout layout_;
};

/// Collector of rows: the number of a sample, then the task's numbers for it.
class ReferenceTask final : public tasks::Task {
 public:
  /// Takes the numbers of a row.
  ReferenceTask(std::shared_ptr<const tasks::Task> task, int64_t numbers) : task_(std::move(task)), numbers_(numbers) {}

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return task_->loss(model, batch, weight);
  }
  tasks::Tally::Parts parts() const override {
    return {.sums = {}, .rows = {{.name = kRows, .columns = 1 + numbers_}}};
  }
  void evaluate(models::Model& model, const Batch& batch, tasks::Tally& tally) const override {
    const at::Tensor numbers = task_->reference(model, batch).to(at::kDouble).reshape({batch.samples, numbers_});
    const at::Tensor samples = batch.tensor(kSample).narrow(0, 0, batch.samples).to(at::kDouble);
    tally.append(kRows, at::cat({samples.unsqueeze(1), numbers}, 1));
  }

 private:
  std::shared_ptr<const tasks::Task> task_;
  int64_t numbers_;
};

/// Describes what the numbers depend on besides the data: the precision, and the weights, by their sums. Another order
/// of adding changes only the last digits of a sum.
std::string beginning_of(const Job& job, BuiltModel& built) {
  std::map<std::string, at::Tensor> of_parameter;
  each_weight(built, [&](const std::string& name, const at::Tensor& values) {
    of_parameter[name] = at::stack({at::sum(values, at::kDouble), at::sum(values.abs(), at::kDouble)});
  });
  at::Tensor sums;
  built.model->each_parameter([&](const std::string& name, const nn::Parameter&) {
    const at::Tensor& both = of_parameter.at(name);
    sums = sums.defined() ? sums * 0.99 + both : both;  // the same parameters in another order are another model
  });
  sums = sums.to(at::kCPU);
  return fmt::format("precision={}\nweights={:.8e} {:.8e}\n", job.spec().precision, sums[0].item<double>(),
                     sums[1].item<double>());
}

using Splits = std::map<std::string, data::ReferencedSamples*>;

Splits splits_of(JobDatasets& datasets) {
  Splits splits;
  for (const auto& [name, dataset] :
       {std::pair{"train", datasets.train}, std::pair{"val", datasets.val}, std::pair{"test", datasets.test}}) {
    // They are const for their readers, which have not begun.
    auto* referenced = const_cast<data::ReferencedSamples*>(  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        dynamic_cast<const data::ReferencedSamples*>(dataset.get()));
    if (referenced != nullptr) splits[name] = referenced;
  }
  return splits;
}

/// Returns the numbers that the file has of the same data and beginning, by split.
std::map<std::string, at::Tensor> kept_in(const std::filesystem::path& file, const std::string& beginning,
                                          const Splits& splits) {
  std::map<std::string, at::Tensor> kept;
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return kept;
  try {
    const checkpoint::SafetensorsFile found(file);
    const auto text = [&](const std::string& key) {
      const auto at = found.metadata().find(key);
      return at == found.metadata().end() ? std::string() : at->second;
    };
    if (text(kBeginning) != beginning) return kept;
    for (const auto& [name, samples] : splits) {
      if (!found.has(name) || text(name) != data::content_digits(*samples)) continue;
      const at::Tensor values = found.tensor(name);
      if (values.sizes() == at::IntArrayRef({samples->size(), samples->numbers()}) &&
          values.scalar_type() == at::kDouble)
        kept[name] = values.clone();
    }
  } catch (const Error& damaged) {
    log::warning(std::string("log-probabilities are computed again: ") + damaged.what());
    kept.clear();
  }
  return kept;
}

/// Keeps the numbers. Only warns if it cannot: they can be computed again.
void keep(const std::filesystem::path& file, const std::string& beginning, const Splits& splits,
          const std::map<std::string, at::Tensor>& values) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(file.parent_path(), unknown)) return;  // weights are evaluated without a run
  checkpoint::Metadata metadata{{kBeginning, beginning}};
  checkpoint::NamedTensors tensors;
  for (const auto& [name, samples] : splits) {
    metadata[name] = data::content_digits(*samples);
    tensors.emplace_back(name, values.at(name));
  }
  try {
    checkpoint::write_safetensors(file, tensors, metadata);
  } catch (const Error& failure) {
    log::warning(std::string("log-probabilities are not kept, and a restart computes them again: ") + failure.what());
  }
}

at::Tensor computed(const Job& job, TrainingSetup& setup, const std::string& role,
                    const data::ReferencedSamples& samples) {
  const auto task = std::make_shared<ReferenceTask>(setup.datasets.task, samples.numbers());
  const auto numbered = std::make_shared<NumberedSamples>(samples.samples());
  train::StopPoll never(setup.context.groups, {});
  // Limit of all samples: "val" has a limit of its own.
  const auto totals = make_evaluator(job.spec(), numbered, setup, role, samples.size(), task)
                          .totals(*setup.built.model, setup.context.groups, never);
  never.finish();
  const at::Tensor& rows = totals.rows.at(kRows);
  at::Tensor values = at::full({samples.size(), samples.numbers()}, 0.0, at::kDouble);
  const at::Tensor numbers = rows.select(1, 0).to(at::kLong);
  const at::Tensor real = numbers.ge(0).nonzero().squeeze(1);
  values.index_copy_(0, numbers.index_select(0, real), rows.narrow(1, 1, samples.numbers()).index_select(0, real));
  return values;
}

}  // namespace

void add_references(JobDatasets& datasets) {
  const int64_t numbers = datasets.task->reference_numbers();
  if (numbers == 0) return;
  for (auto* dataset : {&datasets.train, &datasets.val, &datasets.test}) {
    if (*dataset == nullptr) continue;
    const data::Field* samples = (*dataset)->layout().find(data::kIsSample);  // several share a row
    const int64_t in_row = samples != nullptr ? samples->sizes[0] : 1;
    *dataset = std::make_shared<data::ReferencedSamples>(*dataset, in_row * numbers);
  }
}

void take_references(const Job& job, TrainingSetup& setup, const ReferenceRequest& request) {
  Splits splits = splits_of(setup.datasets);
  if (!request.split.empty()) std::erase_if(splits, [&](const auto& split) { return split.first != request.split; });
  if (splits.empty()) return;
  comm::ProcessGroups& groups = setup.context.groups;
  const at::NoGradGuard no_grad;
  const std::string beginning = beginning_of(job, setup.built);
  std::map<std::string, at::Tensor> values;
  groups.on_rank_zero([&] { values = kept_in(request.file, beginning, splits); }, "kept references");
  bool is_new = false;
  for (const auto& [name, samples] : splits) {
    at::Tensor& own = values[name];
    if (groups.from_rank_zero(static_cast<int64_t>(own.defined()), "whether references are kept") != 0) {
      if (!own.defined()) own = at::empty({samples->size(), samples->numbers()}, at::kDouble);
      if (!groups.alone()) groups.control().broadcast(own, 0, "references");
    } else {
      const std::string what = "computes log-probabilities of " + counted(samples->size(), "sample") + " of data." +
                               name + " with the model before training";
      request.say ? request.say(what) : log::info(what);
      own = computed(job, setup, name, *samples);
      is_new = true;
    }
    samples->set(own);
  }
  if (is_new && request.keeps && setup.context.rank() == 0) keep(request.file, beginning, splits, values);
}

}  // namespace gputrain::app
