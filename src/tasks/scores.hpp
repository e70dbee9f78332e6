// Scores of predictions against the truth.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::tasks {

/// Counts of one class.
struct Hits {
  double both = 0, predicted = 0, true_ones = 0;  // as both, as predicted, as it truly is
  /// 2 both / (predicted + true); 0 where the class is in neither (van Rijsbergen, "Information Retrieval", 1979).
  double f1() const { return predicted + true_ones > 0 ? 2 * both / (predicted + true_ones) : 0; }
};

/// Class numbers of each sample: double [samples, 2], predicted and true. Rows that are truly kIgnoreIndex do not
/// count.
class Confusion {
 public:
  explicit Confusion(const at::Tensor& rows);

  double f1() const;        // of two classes that of class 1; of more f1_macro()
  double f1_macro() const;  // the mean over the classes that occur
  /// Matthews' correlation coefficient (Gorodkin, Comput. Biol. Chem. 28, 2004, for more than two classes); 0 where
  /// all samples are, or are taken for, one class.
  double mcc() const;

 private:
  std::vector<Hits> classes_;
  double samples_ = 0, right_ = 0;
};

/// Pearson's correlation of the columns of double [samples, 2]; 0 where a column is constant. Rows whose second value
/// is NaN do not count.
double pearson(const at::Tensor& rows);
/// Spearman's: Pearson's of the ranks, where equal values share the mean of their ranks.
double spearman(const at::Tensor& rows);

}  // namespace gputrain::tasks
