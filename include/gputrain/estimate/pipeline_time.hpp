// Time of a step whose micro-batches pass through the stages of a pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "gputrain/estimate/step_time.hpp"
#include "gputrain/parallel/timetable.hpp"

namespace gputrain::app {

/// Work of all stages in one step.
struct PipelineWork {
  parallel::PipelineShape shape;
  std::vector<StepWork> kinds;        // work of parts of the model that differ
  std::vector<size_t> kind_of_parts;  // index into `kinds` for each part of the model, in order
  Collective transfer;                // transfer of a micro-batch between stages
  std::vector<Collective> of_ends;    // transfers between the first and the last stage, once in a step
};

/// Returns the bytes that each rank of the first stage sends in the step.
double sent_bytes(const PipelineWork& work);

/// Times of steps; remembers timetables, which many candidates have in common.
class PipelineTimes {
 public:
  /// Computes the time of a step in which every stage runs its passes as parallel::timed_passes() says, and waits
  /// between them. A transfer to the next stage counts if it takes longer than a pass, and for the first micro-batch
  /// through all stages and the last one back. A step is as long as that of the slowest stage; computing and sending
  /// are the mean over the stages, and the rest is waiting.
  StepTime step_time(const PipelineWork& work, const ClusterRates& rates);

 private:
  /// Returns the seconds from the first pass to the last.
  double seconds_of(const parallel::PipelineShape& shape, const parallel::PassTimes& times);

  std::map<std::tuple<int64_t, int64_t, int64_t, std::vector<int64_t>>, double> known_;
};

}  // namespace gputrain::app
