// Replay: repeats a step of a run from the checkpoint before it, and compares it with the record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/inspect/tensor_difference.hpp"

namespace gputrain::app {

struct ReplayReport {
  struct Metric {
    int64_t step = 0;
    std::string metric;
    std::optional<double> recorded, replayed;  // empty: not finite
  };
  struct Tensor {
    std::string file, name;
    TensorDifference difference;
  };
  int64_t from = 0;                    // step of the checkpoint from which the replay began
  bool has_weights = false;            // there is a checkpoint of the step to compare with
  std::vector<int64_t> steps;          // steps whose metrics were compared
  std::map<std::string, double> last;  // replayed metrics of the last of them
  std::vector<Metric> metrics;         // differences, in order of steps
  int64_t tensors = 0;                 // compared
  std::vector<Tensor> tensors_differing;
  std::vector<std::string> notes;  // changes of settings, machine and data that explain differences
  double seconds = 0;
  int rank = 0;  // of this process

  bool is_equal() const noexcept { return metrics.empty() && tensors_differing.empty(); }
};

/// Repeats the steps of a run folder up to `step`; writes nothing. Throws Error(usage) if there is no record to compare
/// with or if training did more than steps in between, Error(checkpoint) if no checkpoint lies before. Every rank must
/// call.
ReplayReport replay(const std::filesystem::path& run, int64_t step);

}  // namespace gputrain::app
