// The best rates ever measured, by kind of machine, in a file of the user.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "gputrain/core/process.hpp"
#include "gputrain/launch/machine_rates.hpp"

namespace gputrain::doctor {

class BestRates {
 public:
  /// $XDG_STATE_HOME/gputrain/machines.json, or below ~/.local/state. Without a home folder nothing is kept.
  explicit BestRates(const Lookup& lookup);

  const std::filesystem::path& file() const noexcept { return file_; }
  /// Returns the best rates of a kind of machine, by Rate::what. Empty: never measured, or the file cannot be read.
  std::map<std::string, double> of(const std::string& kind) const;
  /// Raises the kept rates to these. Returns why they cannot be written; empty: they are.
  std::string keep(const launch::MachineRates& machine) const;

 private:
  std::filesystem::path file_;
};

}  // namespace gputrain::doctor
