// Records some steps of a run: a trace for each rank, and a summary of what they cost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::train {

/// What a profile says of its run besides.
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
    int64_t steps;                 // to be recorded; fewer if training ends before
    std::filesystem::path folder;  // gets rank<k>.trace.json and summary.json
    ProfileFacts facts;
    models::Model& model;
    comm::ProcessGroups& groups;
    const Plan& plan;
    at::Device device = at::kCPU;
  };

  explicit ProfileHook(Parts parts);
  ~ProfileHook() override;

  void before_training(Progress& progress) override;
  void before_step(const Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;

  /// The summary that was written; empty: none.
  const std::filesystem::path& written() const noexcept { return written_; }

 private:
  class Recording;
  void finish();

  Parts parts_;
  std::unique_ptr<Recording> recording_;  // from the first recorded step until it is written
  bool is_done_ = false;
  int64_t first_ = 0, last_ = 0;  // recorded steps, (first, last]
  int64_t samples_ = 0;           // of them, over all ranks
  double train_seconds_ = 0;      // of training before the first of them
  struct Reached {
    int64_t step = 0;
    double train_seconds = 0;
  } reached_;  // after the newest of them
  std::filesystem::path written_;
};

}  // namespace gputrain::train
