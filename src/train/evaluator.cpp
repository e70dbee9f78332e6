#include "gputrain/train/evaluator.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/activity.hpp"
#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/png.hpp"
#include "gputrain/data/subset.hpp"
#include "gputrain/models/mirrored.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/tasks/pixels.hpp"

namespace gputrain::train {
namespace {

/// Sets the model to evaluation mode during its lifetime.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::Model& model) : model_(model), was_training_(model.is_training()) {
    model.train(false);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() { model_.train(was_training_); }

 private:
  models::Model& model_;
  bool was_training_;
};

/// Returns, for each class and each class that its samples were taken for: both classes, the number of such samples,
/// and the samples of the class. Keeps the pairs with most samples if there are too many.
nlohmann::ordered_json confused_pairs(const std::vector<tasks::SampleResult>& results) {
  constexpr size_t kMostPairs = 2000;
  struct Confused {
    int64_t target, guess, count;
  };
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  std::map<int64_t, int64_t> samples;
  for (const tasks::SampleResult& one : results) {
    ++counts[{one.target, one.guess}];
    ++samples[one.target];
  }
  std::vector<Confused> pairs;
  for (const auto& [pair, count] : counts) pairs.push_back({pair.first, pair.second, count});
  if (pairs.size() > kMostPairs) {
    std::ranges::stable_sort(pairs, std::greater<>(), &Confused::count);
    pairs.resize(kMostPairs);
  }
  auto list = nlohmann::ordered_json::array();
  for (const auto& [target, guess, count] : pairs) list.push_back({target, guess, count, samples[target]});
  return list;
}

/// Returns a PNG file of a sample in Base64, made by `png_of`; null: the sample cannot be read any more.
nlohmann::ordered_json picture_of(const data::Dataset& dataset, int64_t position, const auto& png_of) {
  try {
    return to_base64(png_of(dataset, position));
  } catch (const Error& unreadable) {
    if (unreadable.code() != ExitCode::data) throw;
    return nullptr;
  }
}

nlohmann::ordered_json image_of(const data::Dataset& dataset, int64_t position) {
  return picture_of(dataset, position, [](const auto&... sample) { return data::png_of(sample...); });
}

/// Returns image, true mask and predicted mask of the samples whose masks were kept, with most wrong pixels first.
nlohmann::ordered_json masks_of(const data::Dataset& dataset, const at::Tensor& rows) {
  const auto sizes = dataset.layout().target()->sizes;  // height and width
  auto list = nlohmann::ordered_json::array();
  std::vector<const double*> worst;  // each: share of wrong pixels, position, classes
  for (int64_t row = 0; row < rows.size(0) && rows.size(1) == 2 + sizes[0] * sizes[1]; ++row)
    worst.push_back(rows.const_data_ptr<double>() + row * rows.size(1));
  std::ranges::sort(worst, {}, [](const double* values) { return std::pair(-values[0], values[1]); });
  for (const double* values : worst) {
    const auto position = static_cast<int64_t>(values[1]);
    const std::vector<uint8_t> classes(values + 2, values + rows.size(1));
    list.push_back(
        {{"position", position},
         {"name", dataset.sample_name(position)},
         {"wrong", values[0]},
         {"png", image_of(dataset, position)},
         {"truth", picture_of(dataset, position, [](const auto&... sample) { return data::mask_png_of(sample...); })},
         {"prediction", to_base64(data::mask_png_of(classes.data(), sizes[1], sizes[0]))}});
  }
  return list;
}

}  // namespace

parallel::NamedTensors buffers_of(models::Model& model) {
  parallel::NamedTensors buffers;
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { buffers.emplace_back(name, buffer.value); });
  return buffers;
}

void synchronise_buffers(models::Model& model, comm::ProcessGroups& groups) {
  if (!groups.alone()) parallel::broadcast(groups, buffers_of(model));
}

Evaluator::Evaluator(std::shared_ptr<const data::Dataset> dataset, std::shared_ptr<const tasks::Task> task,
                     Options options)
    : dataset_(std::move(dataset)), task_(std::move(task)), options_(std::move(options)) {
  if (options_.max_samples > 0) dataset_ = std::make_shared<data::FirstSamples>(dataset_, options_.max_samples);
  options_.loader.shuffle = false;
  options_.loader.augment = false;
  options_.loader.drop_last = false;
}

tasks::Totals Evaluator::totals(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const {
  const at::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  std::optional<models::Mirrored> mirrored;
  if (options_.mirrors) mirrored.emplace(model);
  models::Model& evaluated = mirrored ? *mirrored : model;
  const device::Reading reading(options_.weights);
  synchronise_buffers(model, groups);
  if (options_.pipeline != nullptr) options_.pipeline->share_ends();
  auto options = options_.loader;
  const int64_t steps = ceil_divide(dataset_->size(), options.partition.global_batch);
  options.steps = steps;
  data::Loader loader(dataset_, options);
  const data::Preprocess preprocess(*dataset_, options_.input);
  tasks::Tally tally(task_->parts(), model.context().device);
  Activity activity("eval", options_.prefix + " data", steps);
  for (int64_t step = 0; step < steps; ++step) {
    if (poll.next() != Stop::none) return {};
    const auto data = loader.next_step();
    for (const Batch& batch : data.micro_batches) {
      if ((options_.is_collective ? batch.samples_on_all_ranks : batch.weight) == 0) continue;
      if (groups.mesh().counts_samples(groups.rank())) tally.add_weight(batch.weight);
      const Batch ready = preprocess(batch);
      if (options_.pipeline == nullptr) {
        task_->evaluate(evaluated, ready, tally);
      } else if (const auto last = options_.pipeline->pass(task_->part_of(ready))) {
        task_->evaluate(model, *last, tally);
      }
    }
    activity.add();
  }
  return tally.merge(groups);
}

monitor::Metrics Evaluator::run(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const {
  return metrics_of(totals(model, groups, poll));
}

monitor::Metrics Evaluator::metrics_of(const tasks::Totals& found) const {
  monitor::Metrics metrics;
  if (found.sums.empty() && found.rows.empty()) return metrics;  // stopped
  for (const auto& metric : task_->metrics()) metrics[options_.prefix + "/" + metric.name] = metric.finish(found);
  return metrics;
}

nlohmann::ordered_json Evaluator::details_of(const tasks::Totals& found) const {
  constexpr size_t kWorst = 12;
  constexpr int64_t kMostPixels = 512 * 512;
  if (found.rows.empty()) return nullptr;
  nlohmann::ordered_json details{{"split", options_.prefix},
                                 {"samples", found.weight},
                                 {"classes", dataset_->class_names()},
                                 {"number_of_classes", dataset_->layout().outputs}};
  if (const auto masks = found.rows.find(tasks::kPredictedMasks); masks != found.rows.end()) {
    for (const auto& [iou, pixels] : tasks::class_ious(found))
      details["iou"].push_back({iou ? nlohmann::ordered_json(*iou) : nullptr, pixels});
    details["masks"] = masks_of(*dataset_, masks->second);
    return details;
  }
  std::vector<tasks::SampleResult> results = task_->sample_results(found);
  if (results.empty()) return nullptr;
  auto worst = nlohmann::ordered_json::array();
  auto pairs = confused_pairs(results);
  const auto rank_of = [](const tasks::SampleResult& one) {
    return std::pair(std::isfinite(one.loss) ? -one.loss : -std::numeric_limits<double>::infinity(), one.position);
  };
  std::ranges::sort(results, {}, rank_of);
  results.resize(std::min(results.size(), kWorst));
  const data::SampleLayout& layout = dataset_->layout();
  const bool has_pictures = layout.is_image() && layout.input().numel() <= 3 * kMostPixels;
  for (const tasks::SampleResult& sample : results) {
    worst.push_back({{"position", sample.position},
                     {"name", dataset_->sample_name(sample.position)},
                     {"target", sample.target},
                     {"guess", sample.guess},
                     {"loss", sample.loss}});
    if (has_pictures) worst.back()["png"] = image_of(*dataset_, sample.position);
  }
  details["pairs"] = std::move(pairs);
  details["worst"] = std::move(worst);
  return details;
}

}  // namespace gputrain::train
