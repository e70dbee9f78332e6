// A task: what is learned. It alone knows targets, the loss and the metrics. One task per file in src/tasks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/config/catalog.hpp"
#include "gputrain/data/fields.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/ops/cross_entropy.hpp"

namespace gputrain::tasks {

/// What an evaluation adds up over the batches of a rank, and then over all ranks.
struct Totals {
  std::map<std::string, double> sums;
  std::map<std::string, at::Tensor> rows;  // double [n, columns] on the CPU, rank 0's first
  double weight = 0;                       // targets that count
};

struct Metric {
  /// detail: logged. result: also shown at the end of a run. best: also what makes a checkpoint the best, unless
  /// checkpoint.metric names another one; one metric of a task.
  enum class Use { detail, result, best };

  std::string name;  // "top1": logged as "val/top1"
  bool smaller_is_better = false;
  std::string label = {};  // on the console; empty: the name
  std::string unit = {};   // behind the value on the console: "%"
  Use use = Use::detail;
  std::function<double(const Totals&)> finish = {};
};

/// Collects the parts of metrics on one rank. Sums are exact over batches and ranks; rows are kept one by one, for
/// metrics that need all of them, such as AUC or mAP.
class Tally {
 public:
  struct Rows {
    std::string name;
    int64_t columns = 1;
  };
  /// The same on every rank, also on one without a batch.
  struct Parts {
    std::vector<std::string> sums;
    std::vector<Rows> rows = {};
  };

  Tally(const Parts& parts, at::Device device);

  /// Adds a 0-dim tensor of any type.
  void add(const std::string& name, const at::Tensor& sum);
  /// Appends rows [n, columns] of any type.
  void append(const std::string& name, const at::Tensor& rows);
  void add_weight(int64_t weight) { weight_ += weight; }

  /// Waits for the device. Every rank must call.
  Totals merge(comm::ProcessGroups& groups) const;

 private:
  at::Tensor joined(const Rows& part, comm::ProcessGroups& groups) const;

  Parts parts_;
  at::Tensor sums_;  // double, one for each name
  std::map<std::string, std::vector<at::Tensor>> rows_;
  int64_t weight_ = 0;
};

/// What a task is chosen by and built for.
struct TaskRequest {
  const data::SampleLayout& layout;
  const InputSpec& model;
  double label_smoothing = 0;
};

class Task {
 public:
  virtual ~Task();

  /// Sum (not mean) of the loss over the batch's targets, in at least fp32. On the autograd graph it is multiplied by
  /// `weight`, a 0-dim double on the model's device; undefined means 1. The backward pass must start at `weighted`.
  virtual ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const = 0;

  /// What evaluate() adds.
  virtual Tally::Parts parts() const = 0;
  /// Adds the parts of a batch to `tally`, without label smoothing. Call in evaluation mode, without a graph.
  virtual void evaluate(models::Model& model, const Batch& batch, Tally& tally) const = 0;

  /// In the order in which the console shows them.
  const std::vector<Metric>& metrics() const noexcept { return metrics_; }
  /// The one that makes a checkpoint the best unless the job names another.
  const Metric& best_metric() const;
  const Metric* find(std::string_view name) const noexcept;  // null: not measured

 private:
  friend class TaskCatalog;
  std::vector<Metric> metrics_;
};

/// A task is registered like everything else: a class with a constructor from (Spec, TaskRequest) and two static
/// functions, `bool fits(const TaskRequest&)` and `std::vector<Metric> measures()`.
class TaskCatalog final : public config::Catalog<Task, const TaskRequest&> {
 public:
  using Catalog::Catalog;

  /// The task that `choice` names; without a name, the one that fits the model and the data. Throws Error(usage) if
  /// none or several fit.
  std::unique_ptr<Task> make(const config::Choice& choice, const TaskRequest& request) const;

  /// Every metric of every task, each name once.
  const std::vector<Metric>& metrics() const noexcept { return all_metrics_; }

  template <class Derived, class Spec>
  void note(const std::string&) {
    entries_.push_back({Derived::fits, Derived::measures()});
    note_metrics(entries_.back().metrics);
  }

 private:
  struct Known {
    bool (*fits)(const TaskRequest&);
    std::vector<Metric> metrics;
  };
  void note_metrics(const std::vector<Metric>& metrics);

  std::vector<Known> entries_;  // in the catalog's order
  std::vector<Metric> all_metrics_;
};

TaskCatalog& catalog();

/// The metric of that name in any task, also by its logged name "val/top1"; null: unknown.
const Metric* find_metric(std::string_view name) noexcept;

/// Whether a smaller value of the metric is better. Metrics that no task has grow, as far as anyone knows.
bool smaller_is_better(std::string_view name) noexcept;

}  // namespace gputrain::tasks
