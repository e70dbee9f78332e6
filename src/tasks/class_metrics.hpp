// Metrics of one class for each sample.
#pragma once

#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

inline constexpr const char* kAucHelp =
    "measure auc, the area under the ROC curve (of two classes that of the second one, else the mean over each class "
    "against the others), for which an evaluation keeps all probabilities of all samples; auto: of at most 100 classes";

/// The metrics f1, precision, recall and auc, beside others of a task.
class ClassMetrics {
 public:
  /// Takes the name of rows whose first columns are the predicted and the true class; see Confusion.
  ClassMetrics(std::string rows, const config::Auto<bool>& measures_auc, const TaskRequest& request);

  /// Returns all four, of any number of classes.
  static std::vector<Metric> of_rows(const std::string& rows, int64_t classes = 0);

  /// Returns those of a task's metrics that are measured, of as many classes as the data has.
  std::vector<Metric> chosen(std::vector<Metric> metrics) const;
  void add_to(Tally::Parts& parts) const;
  /// Appends probabilities [rows, classes] and true classes [rows].
  void append(const at::Tensor& probabilities, const at::Tensor& targets, Tally& tally) const;
  bool measures_auc() const noexcept { return measures_auc_; }

 private:
  std::string rows_;
  int64_t classes_;
  bool measures_auc_;
};

/// Returns the mean loss of an evaluation whose sums have "loss" and, if classes have weights, "loss_weight".
double mean_loss(const Totals& totals);

}  // namespace gputrain::tasks
