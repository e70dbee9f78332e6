// Records some steps of a run: a trace for each rank, and a table of what took most time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "gputrain/models/model.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::train {

/// Must be the first hook, so that no other one acts within the steps that it records. It changes no results. Records
/// what this thread and autograd's threads run, and on a GPU its kernels.
class ProfileHook final : public Hook {
 public:
  static constexpr int64_t kWarmupSteps = 5;  // fewer in a run that is too short

  struct Parts {
    int64_t steps = 0;           // steps to record after the warm-up; fewer if training ends before
    std::filesystem::path file;  // gets this rank's trace; an older one is replaced
    models::Model& model;
    const Plan& plan;
    at::Device device = at::kCPU;
    std::function<void(const Progress&, const std::string& table)> tell_saved;
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
};

}  // namespace gputrain::train
