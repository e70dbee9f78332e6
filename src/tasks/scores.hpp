// Scores of predictions against the truth.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::tasks {

/// Counts of one class.
struct Hits {
  double both = 0, predicted = 0, true_ones = 0;  // samples: as both, as predicted, as it truly is
  /// Returns 2 both / (predicted + true), 0 if the class is in neither (van Rijsbergen, "Information Retrieval", 1979).
  double f1() const { return predicted + true_ones > 0 ? 2 * both / (predicted + true_ones) : 0; }
  double precision() const { return predicted > 0 ? both / predicted : 0; }
  double recall() const { return true_ones > 0 ? both / true_ones : 0; }
};

/// Class numbers of each sample: double [samples, 2], predicted and true. Rows that are truly kIgnoreIndex do not
/// count. `classes`: number of the data's classes; 0: as many as occur.
class Confusion {
 public:
  explicit Confusion(const at::Tensor& rows, int64_t classes = 0);

  double f1() const { return of_second_or_mean(&Hits::f1); }
  double f1_macro() const { return mean(&Hits::f1); }
  double precision() const { return of_second_or_mean(&Hits::precision); }
  double recall() const { return of_second_or_mean(&Hits::recall); }
  /// Returns Matthews' correlation coefficient (Gorodkin, Comput. Biol. Chem. 28, 2004, for more than two classes); 0
  /// where all samples are, or are taken for, one class.
  double mcc() const;

 private:
  using Score = double (Hits::*)() const;
  double of_second_or_mean(Score score) const;  // two classes: that of class 1; more: the mean
  double mean(Score score) const;               // takes the classes that occur

  std::vector<Hits> classes_;
  bool is_binary_ = false;
  double samples_ = 0, right_ = 0;
};

/// Returns the area under the ROC curve (Fawcett, Pattern Recognition Letters 27, 2006), where equal scores count half:
/// double [samples], and whether the class is true for each. 0.5 if there are no samples of it, or no others.
double auc(const std::vector<double>& scores, const std::vector<bool>& truth);
/// Returns that of double [samples, classes] with the true class [samples], kIgnoreIndex where it does not count. For
/// two classes, it is that of class 1; for more, the mean over the classes that have samples, each against the others.
double auc(const at::Tensor& scores, const at::Tensor& targets);

/// Distances of numbers from the truth: double [samples, 2 columns], the numbers, then the true ones. A row with a true
/// NaN does not count. Each score is the mean over the columns.
class Errors {
 public:
  explicit Errors(const at::Tensor& rows);

  double mae() const;
  double rmse() const;
  /// Returns the coefficient of determination; 0 where the truth is constant.
  double r2() const;

 private:
  at::Tensor guesses_, truth_;  // [samples, columns]
};

/// Returns Pearson's correlation of the columns of double [samples, 2]; 0 where a column is constant. Rows whose second
/// value is NaN do not count.
double pearson(const at::Tensor& rows);
/// Returns Spearman's: Pearson's of the ranks, where equal values share the mean of their ranks.
double spearman(const at::Tensor& rows);

}  // namespace gputrain::tasks
