#include "gputrain/inspect/data_bench.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/order.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/data/read_stages.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::app {
namespace {

using DataClock = std::chrono::steady_clock;

double data_seconds_since(DataClock::time_point begin) {
  return std::chrono::duration<double>(DataClock::now() - begin).count();
}

/// Memory of one sample.
class OneRow {
 public:
  explicit OneRow(const data::SampleLayout& layout) : counts_(layout.fields.size()) {
    bytes_.reserve(layout.fields.size());
    for (size_t i = 0; i < layout.fields.size(); ++i) {
      const data::Field& field = layout.fields[i];
      const size_t element = at::elementSize(field.type), size = static_cast<size_t>(field.numel()) * element;
      bytes_.emplace_back(size);
      memory_.push_back({.values = bytes_.back().data(),
                         .counts = field.ragged ? &counts_[i] : nullptr,
                         .bytes = size,
                         .element_bytes = element});
    }
  }
  data::SampleRow row() const { return {memory_, 0}; }

 private:
  std::vector<int64_t> counts_;
  std::vector<std::vector<std::byte>> bytes_;
  data::BatchMemory memory_;
};

void time_reading(const data::Dataset& dataset, const data::LoaderOptions& options, int64_t samples, DataRates& rates) {
  const OneRow memory(dataset.layout());
  const auto order = data::order_of_epoch(options.seed, 0, dataset.size());
  const data::ReadContext context{.seed = options.seed, .epoch = 0, .augment = options.augment};
  data::ReadStages stages;
  double all = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const auto begin = DataClock::now();
    stages.begin();
    dataset.read(order(i % dataset.size()), context, memory.row());
    all += data_seconds_since(begin);
  }
  const auto count = static_cast<double>(samples);
  rates.one_thread = count / all;
  for (const auto& [name, seconds] : stages.stages()) rates.stages.push_back({name, count / seconds});
  if (rates.stages.empty()) rates.stages.push_back({"read", rates.one_thread});
}

void time_loading(const JobDatasets& datasets, const data::LoaderOptions& options, const data::Preprocess& preprocess,
                  int64_t samples, DataRates& rates) {
  data::LoaderOptions reading = options;
  const int64_t per_step = reading.partition.global_batch, steps = std::max<int64_t>(2, ceil_divide(samples, per_step));
  reading.steps = 2 * steps;
  data::Loader loader(datasets.train, reading);
  // The first half uses up the batches that workers have read ahead, and the workers' start.
  for (int64_t i = 0; i < steps; ++i) loader.next_step();
  double waiting = 0, finishing = 0;
  for (int64_t i = 0; i < steps; ++i) {
    auto begin = DataClock::now();
    const data::StepData step = loader.next_step();
    waiting += data_seconds_since(begin);
    begin = DataClock::now();
    for (const Batch& batch : step.micro_batches) preprocess(batch);
    device::synchronize(options.device);
    finishing += data_seconds_since(begin);
  }
  const double count = static_cast<double>(steps * per_step);
  rates.preprocess = count / finishing;
  // With workers, the loader continues to read while batches are finished.
  rates.loader = count / (reading.num_workers > 0 ? waiting + finishing : waiting);
}

}  // namespace

DataRates time_data(const Job& job, const JobDatasets& datasets, const RankContext& context, int64_t samples) {
  const train::Plan plan = plan_run(job.spec(), datasets, context);
  const data::LoaderOptions options = loader_options(job.spec(), *datasets.train, context, plan.batch);
  DataRates rates;
  rates.workers = options.num_workers;
  rates.cpus = device::cpus_of_rank(1);
  rates.is_cheap = datasets.train->is_cheap_to_read();
  time_reading(*datasets.train, options, samples, rates);
  const data::Preprocess preprocess(*datasets.train, input_format(job.spec(), *datasets.train, context));
  time_loading(datasets, options, preprocess, samples, rates);
  return rates;
}

std::string data_advice(const DataRates& rates) {
  const auto slowest = std::min_element(
      rates.stages.begin(), rates.stages.end(),
      [](const DataStage& a, const DataStage& b) { return a.samples_per_second < b.samples_per_second; });
  if (rates.is_cheap) return "reading is little more than a copy: workers would only add to it";
  GPUTRAIN_ASSERT(slowest != rates.stages.end(), "reading has at least one stage");
  const std::string limit = fmt::format("`{}` takes {:.0f} % of reading", slowest->name,
                                        100 * rates.one_thread / slowest->samples_per_second);
  const int64_t readers = std::max<int64_t>(1, rates.workers);
  if (rates.workers < rates.cpus)
    return limit + fmt::format(": raise data.num_workers (now {}; this machine has {})", rates.workers,
                               counted(rates.cpus, "logical CPU"));
  constexpr double kMuchLess = 0.6;
  if (rates.loader < kMuchLess * static_cast<double>(readers) * rates.one_thread)
    return limit + fmt::format(
                       "; {} together read {:.1f} times as fast as one: the disk or the CPUs are shared, so "
                       "fewer threads elsewhere or fewer data.num_workers may help",
                       counted(readers, "worker"), rates.loader / rates.one_thread);
  if (slowest->name == "decode" || slowest->name == "resize")
    return limit + ": store the images smaller, near data.image.size, for all CPUs are busy";
  if (slowest->name == "augment") return limit + ": leave out colour operations in data.image.augment";
  return limit + ", and all CPUs are busy with it";
}

}  // namespace gputrain::app
