// How fast a machine is, as measured, and how that compares with the best that is known of its kind.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::launch {

struct Rate {
  std::string of;         // the part: "cpu", "gpu 1", "disk"
  std::string what;       // "fp32 product"; equal for equal parts, which are compared
  double per_second = 0;  // bytes, or floating-point operations
  std::string text = {};  // for people: "61.2 GFLOP/s"
};

struct MachineRates {
  std::string kind;  // "2 x NVIDIA H100", or the processor with its number of cores
  std::vector<Rate> rates = {};
  std::map<std::string, double> best = {};  // known before, of this kind, by `what`

  /// Returns the best known before, or measured here of another part; 0: nothing is known.
  double best_for(const Rate& rate) const;
};

/// Lets each learn what the others of its kind have measured and known.
void share_best(std::vector<MachineRates>& machines);

/// The rate that is furthest below the best known, in percent of it.
struct WeakestRate {
  Rate rate;
  double percent = 100;
};
std::optional<WeakestRate> weakest_of(const MachineRates& machine);

nlohmann::json to_json(const MachineRates& machine);
/// Throws nlohmann::json::exception if `json` is something else.
MachineRates machine_rates_of(const nlohmann::json& json);

}  // namespace gputrain::launch
