// Shows what every rank does: counts steps, and compares the ranks' times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gputrain/device/phase_clock.hpp"
#include "gputrain/monitor/board.hpp"
#include "gputrain/monitor/straggler.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

/// About once a second the ranks tell one another how long each phase of their steps took; rank 0 shows it on the board
/// and names the rank that the others wait for. Reads nothing from the device that is not complete.
class MeterHook final : public Hook {
 public:
  struct Parts {
    device::PhaseClock& clock;
    comm::ProcessGroups& groups;
    Reporting reporting;
    monitor::Board& board;            // only rank 0's is shown
    std::vector<std::string> places;  // place of each rank
    /// Returns more measurements of this rank, such as "rank/memory_bytes": the same names on every rank, NaN for
    /// unknown values.
    std::function<monitor::Metrics()> readings = [] { return monitor::Metrics(); };
  };
  explicit MeterHook(Parts parts)
      : parts_(std::move(parts)), finder_(static_cast<size_t>(parts_.groups.mesh().stage_ranks())) {}

  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  bool will_act(const Progress&, bool) const override { return false; }
  bool is_due() const override;
  /// Keeps the readings of GPUs and memory new.
  Stop while_held(Progress& progress, bool requested) override;

  /// Returns seconds of a step in each phase, averaged over the ranks and the steps since the last call, as
  /// "time/forward_seconds"; empty until the ranks have compared.
  monitor::Metrics take_times();

 private:
  std::vector<device::PhaseTimes> gather(const device::PhaseTimes& times);
  void compare(const Progress& progress);
  void show(const std::vector<device::PhaseTimes>& ranks, const Progress& progress);

  Parts parts_;
  Stopwatch since_comparison_;
  int64_t steps_ = 0;  // since then
  bool is_held_ = false;
  std::vector<device::PhaseTimes> totals_;  // times of each rank over this attempt
  device::PhaseTimes since_line_{};         // sum over the ranks
  int64_t steps_since_line_ = 0;
  monitor::StragglerFinder finder_;
};

}  // namespace gputrain::train
