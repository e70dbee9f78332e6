#include "gputrain/estimate/pipeline_time.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

constexpr double kInPass = 3;  // units per micro-batch: PassTimes count forward passes; a backward one takes twice that

/// Returns the time of a micro-batch on the slowest stage.
double slowest_of(const parallel::PipelineShape& shape, const parallel::PassTimes& times) {
  double most = 0;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    double of_a_micro_batch = 0;
    for (auto part = static_cast<size_t>(stage); part < times.size(); part += static_cast<size_t>(shape.stages))
      of_a_micro_batch += kInPass * times[part];
    most = std::max(most, of_a_micro_batch);
  }
  return most;
}

double seconds_of_all(const parallel::PipelineShape& shape, const parallel::PassTimes& times) {
  double end = 0;
  for (const auto& stage : parallel::timed_passes(shape, times)) end = std::max(end, stage.back().end);
  return end;
}

/// Returns the time besides passes, on the stage with most of it.
StepTime most_besides(const PipelineWork& work, const ClusterRates& rates) {
  std::vector<StepTime> of_stages(static_cast<size_t>(work.shape.stages));
  for (size_t part = 0; part < work.kind_of_parts.size(); ++part)
    of_stages[part % of_stages.size()].add(time_besides(work.kinds[work.kind_of_parts[part]], rates));
  return *std::ranges::max_element(of_stages, {}, &StepTime::total);
}

/// Extends a pass if a transfer beside it takes longer.
void send_beside(StepTime& pass, const CollectiveTime& sent) {
  const double seconds = pass.total();
  if (sent.seconds <= seconds) return;
  pass.add(sent.limit, sent.seconds - seconds);
}

}  // namespace

double sent_bytes(const PipelineWork& work) {
  const auto stages = static_cast<size_t>(work.shape.stages);
  // A stage sends the activations of each of its parts, and the gradients of all but the first.
  const int64_t transfers = (2 * work.shape.parts - 1) * work.shape.micro_batches;
  double bytes = static_cast<double>(transfers) * sent_bytes(work.transfer);
  for (size_t part = 0; part < work.kind_of_parts.size(); part += stages)
    bytes += sent_bytes(work.kinds[work.kind_of_parts[part]]);
  if (!work.of_ends.empty()) bytes += sent_bytes(work.of_ends.front());
  return bytes;
}

double PipelineTimes::seconds_of(const parallel::PipelineShape& shape, const parallel::PassTimes& times) {
  // Once all stages are busy, each further micro-batch takes as long as on the slowest one.
  const int64_t enough = 2 * shape.stages, counted = std::min(shape.micro_batches, enough);
  const double longest = *std::ranges::max_element(times);
  GPUTRAIN_ASSERT(longest > 0, "passes take time");
  constexpr double kSteps = 1000;  // precision with which times are compared
  std::vector<int64_t> rounded;
  parallel::PassTimes relative;
  for (const double one : times) {
    rounded.push_back(std::llround(kSteps * one / longest));
    relative.push_back(static_cast<double>(rounded.back()) / kSteps);
  }
  const auto [found, is_new] = known_.try_emplace({shape.stages, shape.parts, counted, rounded});
  if (is_new) {
    found->second = seconds_of_all({.stages = shape.stages, .parts = shape.parts, .micro_batches = counted}, relative);
  }
  return longest * found->second + static_cast<double>(shape.micro_batches - counted) * slowest_of(shape, times);
}

StepTime PipelineTimes::step_time(const PipelineWork& work, const ClusterRates& rates) {
  const CollectiveTime sent = collective_time(work.transfer, rates);
  std::vector<PassesTime> of_kinds;
  for (const StepWork& kind : work.kinds) {
    of_kinds.push_back(passes_time(kind, rates));
    send_beside(of_kinds.back().forward, sent);
    send_beside(of_kinds.back().backward, sent);
    send_beside(of_kinds.back().last_backward, sent);
  }
  const auto stages = static_cast<double>(work.shape.stages), passes = static_cast<double>(work.shape.micro_batches);
  StepTime time;
  parallel::PassTimes times;
  std::vector<double> last(static_cast<size_t>(work.shape.stages), 0.0);  // extra time of a stage's last backward pass
  for (size_t part = 0; part < work.kind_of_parts.size(); ++part) {
    const PassesTime& pass = of_kinds[work.kind_of_parts[part]];
    time.add(pass.forward, passes / stages);
    time.add(pass.backward, (passes - 1) / stages);
    time.add(pass.last_backward, 1 / stages);
    times.push_back((pass.forward.total() + pass.backward.total()) / kInPass);
    last[part % last.size()] += pass.last_backward.total() - pass.backward.total();
  }
  const double seconds = seconds_of(work.shape, times) + *std::ranges::max_element(last);
  time.waiting = std::max(0.0, seconds - time.total());
  const auto hops = static_cast<double>(2 * (times.size() - 1));
  time.add(sent.limit, hops * sent.seconds);
  for (const Collective& one : work.of_ends) {
    const CollectiveTime between = collective_time(one, rates);
    time.add(between.limit, between.seconds);
  }
  time.add(most_besides(work, rates));
  return time;
}

}  // namespace gputrain::app
