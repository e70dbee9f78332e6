#include "gputrain/tasks/task.hpp"

#include <algorithm>
#include <stdexcept>

#include <ATen/ops/softmax.h>

#include "gputrain/core/error.hpp"

namespace gputrain::tasks {
namespace {

const Metric* find_in(const std::vector<Metric>& metrics, std::string_view name) noexcept {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const Metric& each) { return each.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

}  // namespace

Task::~Task() = default;

std::vector<SampleResult> Task::sample_results(const Totals&) const { return {}; }

at::Tensor Task::outputs(const at::Tensor& logits) const { return at::softmax(logits, -1); }

at::Tensor Task::reference(models::Model&, const Batch&) const {
  assertion_failed("reference", __FILE__, __LINE__, "this task takes nothing from the model before training");
}

const Metric& Task::best_metric() const {
  const auto best = std::find_if(metrics_.begin(), metrics_.end(),
                                 [](const Metric& metric) { return metric.use == Metric::Use::best; });
  GPUTRAIN_ASSERT(best != metrics_.end(), "a task without a metric that makes a checkpoint the best");
  return *best;
}

const Metric* Task::find(std::string_view name) const noexcept { return find_in(metrics_, name); }

TaskCatalog& catalog() {
  static TaskCatalog tasks("task");
  return tasks;
}

InputSpec TaskCatalog::reads(const config::Choice& choice, InputSpec model) const {
  if (choice.name.empty() || model.target == Target::pixels) return model;
  if (const auto target = entries_.at(index_of(choice.name)).target) model.target = *target;
  return model;
}

Abilities TaskCatalog::abilities(const config::Choice& choice, const InputSpec& model) const {
  if (!choice.name.empty()) return CatalogOfAbilities::abilities(choice);
  if (!model.reads_tokens()) return {};
  const auto found = std::ranges::find(entries_, std::optional(model.target), &Known::target);
  if (found == entries_.end()) return {};
  return CatalogOfAbilities::abilities(with_defaults(entries().at(static_cast<size_t>(found - entries_.begin())).name));
}

std::vector<std::string> TaskCatalog::measured(const config::Choice& choice, const InputSpec& model) const {
  std::vector<std::string> names;
  const auto add = [&](const Known& task) {
    for (const Metric& metric : task.metrics)
      if (std::ranges::find(names, metric.name) == names.end()) names.push_back(metric.name);
  };
  if (!choice.name.empty()) {
    add(entries_.at(index_of(choice.name)));
  } else if (model.reads_tokens()) {
    for (const Known& task : entries_)
      if (task.target == std::optional(model.target)) add(task);
  }
  return names;
}

void TaskCatalog::check_head(const config::Choice& choice, const InputSpec& model) const {
  if (choice.name.empty() || !model.reads_tokens()) return;
  const auto head = entries_.at(index_of(choice.name)).head;
  if (!head || *head == model.target) return;
  throw Error(ExitCode::usage, {.what = choice.name + " learns from a model that gives " + std::string(head->gives()) +
                                        ", and this one gives " + std::string(model.target.gives()),
                                .where = "model.config.head",
                                .hint = std::string(head->model())});
}

std::unique_ptr<Task> TaskCatalog::make(const config::Choice& choice, const TaskRequest& request) const {
  size_t index = 0;
  std::vector<std::string> fitting;
  std::string names;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].fits(request)) continue;
    fitting.push_back(entries().at(i).name);
    names += (names.empty() ? "" : ", ") + fitting.back();
    index = i;
  }
  if (choice.name.empty()) {
    if (fitting.empty() && request.model.target == Target::pixels)
      throw Error(ExitCode::usage, {.what = "the model gives each pixel a class, but the data has no masks",
                                    .where = "model.type",
                                    .hint = "format: segmentation reads images with masks"});
    if (fitting.size() != 1)
      throw Error(ExitCode::usage, {.what = fitting.empty() ? "no task fits this model and data"
                                                            : "several tasks fit this model and data: " + names,
                                    .where = "task.type",
                                    .hint = "name one; `gputrain list tasks` shows all"});
  } else {
    index = index_of(choice.name);
    if (!entries_[index].fits(request))
      throw Error(ExitCode::usage, {.what = choice.name + " does not fit this model and data",
                                    .where = "task.type",
                                    .hint = fitting.empty() ? "" : "what fits: " + names});
  }
  const auto& entry = entries().at(index);
  const config::Choice chosen = choice.name.empty() ? with_defaults(entry.name) : choice;
  auto task = Catalog::make(chosen, request);
  task->abilities_ = CatalogOfAbilities::abilities(chosen);
  task->metrics_ = task->chosen(entries_[index].metrics);
  return task;
}

void TaskCatalog::note_metrics(const std::vector<Metric>& metrics) {
  for (const Metric& metric : metrics) {
    const Metric* known = find_in(all_metrics_, metric.name);
    if (known == nullptr) {
      all_metrics_.push_back(metric);
    } else if (known->smaller_is_better != metric.smaller_is_better) {
      throw std::logic_error("the metric '" + metric.name + "' grows in one task and shrinks in another");
    }
  }
}

const Metric* find_metric(std::string_view name) noexcept {
  const size_t slash = name.rfind('/');
  return find_in(catalog().metrics(), slash == std::string_view::npos ? name : name.substr(slash + 1));
}

bool smaller_is_better(std::string_view name) noexcept {
  const Metric* metric = find_metric(name);
  return metric != nullptr && metric->smaller_is_better;
}

}  // namespace gputrain::tasks
