// Differences between hosts that should be equal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/doctor/finding.hpp"
#include "gputrain/launch/machine_rates.hpp"

namespace gputrain::doctor {

struct HostReport {
  std::string host;
  Findings findings = {};
  std::string problem = {};                // why it could not be examined; empty: it was
  std::string address = {};                // address of its packets to other hosts
  std::string folder = {};                 // folder that a job will write to; empty: none
  std::string run_folder = {};             // the job's, which need not exist
  bool shares_saves = false;               // the job's ranks write parts of each checkpoint
  std::optional<double> write_speed = {};  // speed of the disk, in bytes per second
  std::optional<launch::MachineRates> rates = {};
};

/// Returns one finding for each fact that is not the same everywhere. It names the odd hosts, if more than half agree.
Findings compare(const std::vector<HostReport>& reports);

/// The time of a host's clock, and its error: half the time between question and answer.
struct ClockReading {
  std::string host;
  double ahead = 0, doubt = 0;  // seconds; ahead of ours
};
/// Returns one finding for each clock, ours too, that differs from most by more than a second.
Findings clock_findings(const std::vector<ClockReading>& readings);

/// Returns the numbers of the reports whose disks write at less than a third of the others' speed.
std::vector<size_t> slow_disks(const std::vector<HostReport>& reports);
/// Returns a finding for each of them.
Findings disk_findings(const std::vector<HostReport>& reports);

}  // namespace gputrain::doctor
