// The order in which the stages of a pipeline run the passes of a step, and how long they wait.
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::parallel {

/// Part `g` of a model is the part `g / stages` of stage `g % stages`.
struct PipelineShape {
  int64_t stages = 1;
  int64_t parts = 1;  // parts of the model on each stage; more than one: micro_batches is a multiple of stages
  int64_t micro_batches = 1;
};

/// One pass of one micro-batch through one of the stage's parts.
struct Pass {
  bool is_forward = true;
  int64_t micro_batch = 0;
  int64_t part = 0;  // number among the parts of the stage

  friend bool operator==(const Pass&, const Pass&) = default;
};

/// Returns the passes of a stage in order: forward and backward passes in turn, after as few forward passes as keep the
/// stages after it busy ("1F1B": Narayanan et al., "PipeDream", SOSP 2019, without its stale weights; with several
/// parts its interleaved form: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
/// Megatron-LM", SC 2021). Every stage passes on what it computed in the order in which its neighbour reads it.
std::vector<Pass> passes_of(const PipelineShape& shape, int64_t stage);

/// Returns the largest number of forward passes of a stage that wait for their backward pass at a time.
int64_t most_in_flight(const PipelineShape& shape, int64_t stage);

/// Seconds, or any other unit, of the forward pass of each of the model's parts, in order. A backward pass takes twice
/// that.
using PassTimes = std::vector<double>;

struct TimedPass {
  Pass pass;
  double begin = 0, end = 0;
};
/// Computes when each stage runs its passes, if sending takes no time.
std::vector<std::vector<TimedPass>> timed_passes(const PipelineShape& shape, const PassTimes& times);

/// Returns the share of all stages' time, from the first pass to the last, in which they wait.
double bubble_of(const std::vector<std::vector<TimedPass>>& stages);

/// Cuts units of these costs into `parts` of neighbours, so that the most expensive part is as cheap as can be. Returns
/// the first unit of each part, and the number of units at the end. Each part has a unit with a cost; so there must be
/// as many of them.
std::vector<int64_t> cut_units(const std::vector<double>& costs, int64_t parts);

/// Returns the stage that has a unit. `begins`: the result of cut_units().
int64_t stage_of_unit(int64_t unit, const std::vector<int64_t>& begins, int64_t stages);

}  // namespace gputrain::parallel
