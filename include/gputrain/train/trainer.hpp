// The training loop. Everything else is a hook.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gputrain/device/run_ahead.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"
#include "gputrain/train/step.hpp"
#include "gputrain/train/step_prefetcher.hpp"

namespace gputrain::train {

/// The reason why the loop ended.
struct Outcome {
  Stop stop = Stop::none;  // none: all steps are done

  /// Returns whether a stop was requested; the run can be resumed.
  bool is_preempted() const noexcept { return stop > Stop::early_stop && stop < Stop::diverged; }
};

class Trainer {
 public:
  /// Steps that the host may queue ahead on a GPU: enough to keep it busy, while waiting batches take little memory.
  static constexpr size_t kStepsAhead = 2;

  struct Parts {
    Step& step;
    StepPrefetcher& prefetcher;
    const Plan& plan;
    std::function<Step::Rates(Progress&)> rates;  // returns those of the next step; counts the points of an average
    comm::ProcessGroups& groups;
    at::Device device = at::kCPU;
    device::PhaseClock* clock = nullptr;  // null: phases are not measured
  };

  Trainer(Parts parts, std::vector<Hook*> hooks)
      : parts_(std::move(parts)), hooks_(std::move(hooks)), run_ahead_(parts_.device) {}

  /// Trains from `progress` to the end of the plan, or until the ranks agree to stop. After Stop::diverged the hooks'
  /// after_training() is left to the next run(). Every rank must call.
  Outcome run(Progress& progress);

 private:
  bool finished(const Progress& progress) const noexcept { return progress.step >= parts_.plan.total_steps; }
  Stop hold(Progress& progress);
  std::vector<bool> hook_requests(const std::vector<bool>& granted) const;
  void prefetch(const Progress& progress, const std::vector<bool>& granted);
  void advance(Progress& progress, const StepPrefetcher::Step& fetched);
  void wait_for_device(const Progress& progress, const std::vector<bool>& granted);

  Parts parts_;
  std::vector<Hook*> hooks_;
  device::RunAhead run_ahead_;
};

}  // namespace gputrain::train
