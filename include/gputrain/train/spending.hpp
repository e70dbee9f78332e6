// What a run costs, by limits.price_per_hour, and what limits.max_cost makes of it.
#pragma once

#include <optional>
#include <string>

namespace gputrain::train {

/// Costs of all attempts of a run, in the currency of limits.price_per_hour, which nobody names.
struct Spending {
  double sum = 0;                       // up to now
  double per_hour = 0;                  // of all machines
  std::optional<double> most = {};      // limits.max_cost
  std::optional<double> expected = {};  // of the whole run; empty: its pace is unknown

  /// Returns whether limits.max_cost is reached: no step and no evaluation may begin.
  bool is_over() const noexcept { return most && sum >= *most; }

  /// Returns "12.40 of 100"; without a limit "12.40".
  std::string so_far() const;

  /// Returns so_far() with the price, and what the whole run is expected to cost: "12.40 of 100  2.5 per hour  about
  /// 61.00 for the whole run".
  std::string text() const;

  /// Returns a limits.max_cost with which the run goes on: what it is expected to cost, or else double of what it has
  /// cost or was allowed to, rounded up to two digits.
  double limit_to_go_on() const;

  /// Returns limit_to_go_on() as a setting of a command line: "limits.max_cost=200".
  std::string setting_to_go_on() const;
};

}  // namespace gputrain::train
