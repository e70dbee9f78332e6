// The time of a step whose micro-batches pass through the stages of a pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "gputrain/estimate/step_time.hpp"
#include "gputrain/parallel/timetable.hpp"

namespace gputrain::app {

/// One step of all stages.
struct PipelineWork {
  parallel::PipelineShape shape;
  std::vector<StepWork> kinds;        // passes of parts of the model that differ
  std::vector<size_t> kind_of_parts;  // in order, of each part of the model
  Collective transfer;                // of a micro-batch between stages
  std::vector<Collective> of_ends;    // once in a step, between the first and the last stage
};

/// Bytes that each rank of the first stage sends in the step.
double sent_bytes(const PipelineWork& work);

/// Remembers timetables, which many candidates have in common.
class PipelineTimes {
 public:
  /// Every stage runs its passes as parallel::timed_passes() says; it waits while it has none to run. Sending to the
  /// next stage counts where it takes longer than a pass, and for the first micro-batch through all stages and the last
  /// one back. A step is as long as that of the slowest stage; what computes and sends is the mean of the stages, and
  /// the rest is waiting.
  StepTime step_time(const PipelineWork& work, const ClusterRates& rates);

 private:
  /// Seconds from the first pass to the last.
  double seconds_of(const parallel::PipelineShape& shape, const parallel::PassTimes& times);

  std::map<std::tuple<int64_t, int64_t, int64_t, std::vector<int64_t>>, double> known_;
};

}  // namespace gputrain::app
