// Task: targets, loss and metrics of what the model learns. One task per file in src/tasks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/config/catalog.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/ops/cross_entropy.hpp"
#include "gputrain/records/record_reader.hpp"

namespace gputrain::tasks {

/// Sums and rows of an evaluation, first of one rank, then of all ranks.
struct Totals {
  std::map<std::string, double> sums;
  std::map<std::string, at::Tensor> rows;          // double [n, columns] on the CPU, in order of ranks
  std::map<std::string, at::Tensor> vectors = {};  // double [entries] on the CPU, sums as well
  double weight = 0;                               // targets that count
};

struct Metric {
  /// Role of a metric. detail: only logged. result: also shown at the end of a run. best: also decides which checkpoint
  /// is the best, unless checkpoint.metric names another metric; each task has one.
  enum class Use { detail, result, best };

  std::string name;  // "top1": logged as "val/top1"
  bool smaller_is_better = false;
  std::string label = {};  // console label; empty: the name
  std::string unit = {};   // unit behind the value on the console: "%"
  Use use = Use::detail;
  std::function<double(const Totals&)> finish = {};
};

/// Collector of the parts of metrics on one rank. Sums are exact over batches and ranks. Rows are kept one by one, for
/// metrics that need all of them, such as AUC or mAP.
class Tally {
 public:
  struct Rows {
    std::string name;
    int64_t columns = 1;  // 0: as many as the rows that are appended
    int64_t most = 0;     // number of rows that are kept, those with the largest first numbers; 0: all
  };
  /// Sum of several numbers, such as one of each class.
  struct Vector {
    std::string name;
    int64_t entries = 0;
  };
  /// Parts, the same on every rank, also on a rank without a batch.
  struct Parts {
    std::vector<std::string> sums;
    std::vector<Rows> rows = {};
    std::vector<Vector> vectors = {};
  };

  Tally(const Parts& parts, at::Device device);

  /// Adds a 0-dim tensor of any type; to a vector, a tensor of its entries.
  void add(const std::string& name, const at::Tensor& sum);
  /// Appends rows [n, columns] of any type.
  void append(const std::string& name, const at::Tensor& rows);
  void add_weight(int64_t weight) { weight_ += weight; }

  /// Merges all ranks' tallies and waits for the device. Every rank must call.
  Totals merge(comm::ProcessGroups& groups) const;

 private:
  const Rows& part_of(const std::string& name) const;
  at::Tensor own(const Rows& part, int64_t columns, comm::ProcessGroups& groups) const;
  at::Tensor joined(const Rows& part, comm::ProcessGroups& groups) const;

  Parts parts_;
  at::Tensor sums_;                           // double: the sums, then the entries of the vectors
  std::map<std::string, at::Tensor> places_;  // parts of sums_, by name
  std::map<std::string, std::vector<at::Tensor>> rows_;
  int64_t weight_ = 0;
};

/// Facts by which a task is chosen and built.
struct TaskRequest {
  const data::SampleLayout& layout;
  const InputSpec& model;
  double label_smoothing = 0;
  std::vector<std::string> class_names = {};  // names of the training data's classes; empty: unknown
  const data::Dataset* train = nullptr;       // training data; null: there is none
};

/// Evaluation of a sample with a class.
struct SampleResult {
  int64_t position = 0;  // position in the dataset
  int64_t guess = 0, target = 0;
  double loss = 0;
};

/// Abilities of a task, which its spec states before it is built.
struct Abilities {
  /// True: ranks may share the positions of texts: loss() and evaluate() then take this rank's part of a batch. They
  /// are collective over those ranks.
  bool takes_parts_of_texts = false;
  /// True: loss() and evaluate() call the model once, for its last layer, so that it may have begun elsewhere.
  bool takes_last_layer_alone = false;
  bool compares_samples = false;  // true: compares those of all ranks that joined: loss() is collective over them
  bool reads_rows_alone = false;  // true: several samples may not share a row
};

class Task {
 public:
  virtual ~Task();

  /// Returns the sum (not mean) of the loss over the batch's targets, at least in fp32. `weighted` is this sum times
  /// `weight`, a 0-dim double on the model's device (undefined: 1). Start the backward pass at `weighted`.
  virtual ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const = 0;

  /// Returns the parts that evaluate() adds.
  virtual Tally::Parts parts() const = 0;
  /// Adds the parts of a batch to `tally`, without label smoothing. Call it in evaluation mode, without autograd.
  virtual void evaluate(models::Model& model, const Batch& batch, Tally& tally) const = 0;

  /// Returns results of single samples; empty: the task has none.
  virtual std::vector<SampleResult> sample_results(const Totals& totals) const;

  /// Returns the weight of each class in loss(); empty: all alike. The sum over a step is then divided by the sum of
  /// the weights of its targets (data::LoaderOptions::class_weights).
  virtual std::vector<double> class_weights() const { return {}; }

  /// Converts logits [rows, classes] to a probability for each class; for a task of numbers, to the numbers themselves.
  virtual at::Tensor outputs(const at::Tensor& logits) const;

  /// Returns how many numbers of each sample the loss takes from the model as it is before training, such as the
  /// probabilities that it gives answers. They come in the field kReference. 0: none.
  virtual int64_t reference_numbers() const { return 0; }
  /// Returns those of a batch, which need not have that field: [samples, reference_numbers()]; a row may have several
  /// samples. Call it in evaluation mode, without autograd.
  virtual at::Tensor reference(models::Model& model, const Batch& batch) const;

  /// Returns whether loss() is collective over the ranks that joined, so that every rank must call it, also with a
  /// batch without samples.
  bool is_collective() const { return abilities_.compares_samples && groups_ != nullptr && !groups_->alone(); }

  /// Returns the part of a batch that loss() and evaluate() take of it, or the batch itself.
  virtual Batch part_of(const Batch& batch) const { return batch; }

  bool takes_last_layer_alone() const noexcept { return abilities_.takes_last_layer_alone; }

  const Abilities& abilities() const noexcept { return abilities_; }

  /// Returns the metrics in the order in which the console shows them.
  const std::vector<Metric>& metrics() const noexcept { return metrics_; }
  /// Returns the metric that decides which checkpoint is the best, unless the job names another.
  const Metric& best_metric() const;
  const Metric* find(std::string_view name) const noexcept;  // returns null if this task has no such metric

  /// Makes losses that compare samples compare those of all ranks, not only this rank's. The groups must outlive the
  /// task.
  void join(comm::ProcessGroups& groups) noexcept { groups_ = &groups; }

 protected:
  comm::ProcessGroups* groups() const noexcept { return groups_; }  // returns null if this rank is alone

  /// Chooses which of the metrics of its class this task has, and how it uses them.
  virtual std::vector<Metric> chosen(std::vector<Metric> all) const { return all; }

 private:
  friend class TaskCatalog;
  Abilities abilities_;
  std::vector<Metric> metrics_;
  comm::ProcessGroups* groups_ = nullptr;
};

/// Catalog of tasks, which are registered like other catalog entries. The class needs a constructor from (Spec,
/// TaskRequest) and two static functions, `bool fits(const TaskRequest&)` and `std::vector<Metric> measures()`. A task
/// of texts has another, `Target target()`: the target of its samples. If its model gives something else, it has also
/// `Target head()`, which names that. If nothing else makes samples for its target, it has a third one, of type
/// records::MakeReader: `reader`.
class TaskCatalog final : public config::CatalogOfAbilities<Abilities, Task, const TaskRequest&> {
 public:
  using CatalogOfAbilities::CatalogOfAbilities;

  /// Makes the task that `choice` names; without a name, the one that fits the model and the data. Throws Error(usage)
  /// if none or several fit.
  std::unique_ptr<Task> make(const config::Choice& choice, const TaskRequest& request) const;

  /// Returns the model's input for this task: data is opened for it.
  InputSpec reads(const config::Choice& choice, InputSpec model) const;

  /// Returns the abilities; without a name, those of the task of such a model of texts.
  Abilities abilities(const config::Choice& choice, const InputSpec& model) const;

  /// Returns the names of the metrics that the task can have; without a name, those of the tasks of such a model of
  /// texts. Empty: only the data tells.
  std::vector<std::string> measured(const config::Choice& choice, const InputSpec& model) const;

  /// Throws Error(usage) for a model of texts that gives something else than the task needs.
  void check_head(const config::Choice& choice, const InputSpec& model) const;

  /// Returns the metrics of all tasks, each name once.
  const std::vector<Metric>& metrics() const noexcept { return all_metrics_; }

  template <class Derived, class Spec>
  void note(const std::string& name) {
    CatalogOfAbilities::note<Derived, Spec>(name);
    entries_.push_back({Derived::fits, Derived::measures(), {}, {}});
    if constexpr (requires { Derived::target(); }) {
      entries_.back().target = entries_.back().head = Derived::target();
      Target::add(Derived::target());
      if constexpr (requires { Derived::reader; }) records::add_reader(Derived::target(), Derived::reader);
    }
    if constexpr (requires { Derived::head(); }) entries_.back().head = Derived::head();
    note_metrics(entries_.back().metrics);
  }

 private:
  struct Known {
    bool (*fits)(const TaskRequest&);
    std::vector<Metric> metrics;
    std::optional<Target> target;  // target of its samples
    std::optional<Target> head;    // output of a model that it takes
  };
  void note_metrics(const std::vector<Metric>& metrics);

  std::vector<Known> entries_;  // entries in the order of the catalog
  std::vector<Metric> all_metrics_;
};

TaskCatalog& catalog();

/// Returns the metric of this name in any task; also finds its logged name "val/top1". Null: unknown.
const Metric* find_metric(std::string_view name) noexcept;

/// Returns whether a smaller value is better; false for unknown metrics.
bool smaller_is_better(std::string_view name) noexcept;

}  // namespace gputrain::tasks
