// Search for the rank that the others wait for, and for the slow part of its steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/device/phase_clock.hpp"

namespace gputrain::monitor {

struct Straggler {
  int rank = 0;
  device::Phase phase = device::Phase::load;  // phase in which it loses most
  double excess = 0;                          // additional time of its work, relative to the others' work

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

/// Returns "rank 5 @ node2:1 +18 %, data wait".
std::string describe(const Straggler& straggler, const std::vector<std::string>& places);

/// Finder that compares the ranks' own work, all phases but communication: there, fast ranks wait for slow ones.
class StragglerFinder {
 public:
  static constexpr double kLeastExcess = 0.1;
  static constexpr int kWindows = 3;

  /// Sets how many neighbouring ranks do the same work and are compared, `alike`; 0: all.
  explicit StragglerFinder(size_t alike = 0) : alike_(alike) {}

  /// Takes the phases of each rank in the same steps. Returns the straggler if it is slow in the same phase for the
  /// third time in a row, as hiccups do not count. It is returned once, until another one is or all are equal again.
  std::optional<Straggler> look(const std::vector<device::PhaseTimes>& ranks);

  /// Returns the slowest rank of the last window, however small its excess; null if there is nothing to compare.
  const std::optional<Straggler>& slowest() const noexcept { return slowest_; }

 private:
  size_t alike_;
  std::optional<Straggler> slowest_;
  std::optional<Straggler> suspect_, told_;  // only rank and phase count
  int windows_ = 0;                          // number of windows in which the suspect was slow
};

}  // namespace gputrain::monitor
