// Records some steps of a run: a trace for each rank, and a summary of what they cost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::train {

/// More facts about the run for its profile.
struct ProfileFacts {
  std::string device, precision;
  int64_t num_workers = 0;
};

/// Must be the first hook, so that no other one acts within the steps that it records. It changes no results. Records
/// what this thread and autograd's threads run, and on a GPU its kernels.
class ProfileHook final : public Hook {
 public:
  static constexpr int64_t kWarmupSteps = 5;  // fewer in a run that is too short

  struct Parts {
    int64_t steps = 0;             // steps to record after the warm-up; fewer if training ends before
    std::filesystem::path folder;  // gets rank<k>.trace.json and summary.json; an older profile is replaced
    ProfileFacts facts;
    models::Model& model;
    comm::ProcessGroups& groups;
    const Plan& plan;
    at::Device device = at::kCPU;
    std::function<void(const Progress&)> tell_written;  // called on rank 0
  };

  explicit ProfileHook(Parts parts);
  ~ProfileHook() override;

  void before_training(Progress& progress) override;
  void before_step(const Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;

  bool is_recording() const noexcept { return recording_ != nullptr; }
  /// Records so many steps, beginning with the next one. Call it between steps while nothing is recorded. Every rank
  /// must call.
  void record(int64_t steps, const Progress& progress);

 private:
  class Recording;
  void begin(int64_t steps, const Progress& progress, int64_t warmup_steps);
  void finish(const Progress& progress);

  Parts parts_;
  std::unique_ptr<Recording> recording_;  // until it is written
  int64_t steps_ = 0;
  bool is_begun_ = false;         // the recording of Parts::steps has begun
  int64_t first_ = 0, last_ = 0;  // recorded steps, (first, last]
  int64_t samples_ = 0;           // samples of these steps, over all ranks
  double train_seconds_ = 0;      // training time before the first of these steps
  struct Reached {
    int64_t step = 0;
    double train_seconds = 0;
  } reached_;  // after the newest of them
};

}  // namespace gputrain::train
