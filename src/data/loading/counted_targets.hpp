// Bounds on the targets of a micro-batch that count, where most of them do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/loader.hpp"
#include "length_classes.hpp"

namespace gputrain::data {

/// Row counts of a model's last layer. A GPU chooses kernels and records graphs for each number of rows. So the layer
/// does not compute exactly the rows whose targets count, but one number of rows for all micro-batches of a length,
/// which is enough for nearly all of them.
class CountedTargets {
 public:
  CountedTargets() = default;  // knows no number
  /// Reads the first micro-batches of this rank in the first epoch: the same wherever the loader begins. Data that is
  /// not cheap to read has no numbers.
  CountedTargets(const std::shared_ptr<const Dataset>& dataset, const LoaderOptions& options,
                 const std::map<int, LengthClasses>& classes);

  /// Returns the number for a field of a micro-batch, whose values are on the host. 0: the number is unknown, would
  /// save too little, or is less than the targets that count here.
  int64_t most_of(size_t field, const at::Tensor& values) const;

 private:
  std::map<std::pair<size_t, int64_t>, int64_t> most_;  // numbers by field and length
};

}  // namespace gputrain::data
