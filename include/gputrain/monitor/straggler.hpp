// Finds the rank that the others wait for, and in which part of its steps it is slow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/device/phase_clock.hpp"

namespace gputrain::monitor {

struct Straggler {
  int rank = 0;
  device::Phase phase = device::Phase::load;  // in which it loses most
  double excess = 0;                          // how much longer its work takes than the others', of their step's time

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

/// "rank 5 @ node2:1 +18 %, data wait"
std::string describe(const Straggler& straggler, const std::vector<std::string>& places);

/// Compares the ranks' own work, all phases but communication: in communication the fast ones wait for the slow.
class StragglerFinder {
 public:
  static constexpr double kLeastExcess = 0.1;
  static constexpr int kWindows = 3;

  /// `alike`: how many neighbouring ranks do the same work, and are compared; 0: all.
  explicit StragglerFinder(size_t alike = 0) : alike_(alike) {}

  /// Takes the phases of each rank in the same steps. Returns the straggler if it is slow in the same phase for the
  /// third time in a row: hiccups count for nothing. Each one is returned once, until another rank or phase is slow or
  /// all are equal again.
  std::optional<Straggler> look(const std::vector<device::PhaseTimes>& ranks);

  /// Of the last window, however small its excess; null where a rank has none to compare with.
  const std::optional<Straggler>& slowest() const noexcept { return slowest_; }

 private:
  size_t alike_;
  std::optional<Straggler> slowest_;
  std::optional<Straggler> suspect_, told_;  // rank and phase alone
  int windows_ = 0;                          // for how many the suspect has been slow
};

}  // namespace gputrain::monitor
