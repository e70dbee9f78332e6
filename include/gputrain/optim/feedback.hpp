// The results of evaluations, for a learning-rate schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gputrain::optim {

/// The state of a curve that follows evaluations. Equal on all ranks; checkpoints store it.
struct Feedback {
  double factor = 1;           // factor of lr()
  std::string metric = {};     // name of the metric whose values follow
  std::optional<double> best;  // so far
  int64_t bad = 0;             // evaluations in a row that were not better
  int64_t cooldown = 0;        // evaluations that are still to pass before bad ones count
};

/// An evaluation of data.val, by the metric of checkpoint.metric.
struct Evaluated {
  std::string metric;
  double value = 0;
  bool smaller_is_better = true;
};

}  // namespace gputrain::optim
