// What differs between hosts that should be equal.
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
  std::string address = {};                // of its packets to other hosts
  std::string folder = {};                 // that a job will write to; empty: none
  std::optional<double> write_speed = {};  // of the disk, in bytes per second
  std::optional<launch::MachineRates> rates = {};
};

/// One finding for each fact that is not the same everywhere. It names the odd hosts, if more than half agree.
Findings compare(const std::vector<HostReport>& reports);

/// What a host's clock said, and by how much that may be wrong: half the time between question and answer.
struct ClockReading {
  std::string host;
  double ahead = 0, doubt = 0;  // seconds; ahead of ours
};
/// One finding for each clock, ours too, that is more than a second off that of most.
Findings clock_findings(const std::vector<ClockReading>& readings);

/// Numbers of the reports whose disks write less than a third of what the others' do.
std::vector<size_t> slow_disks(const std::vector<HostReport>& reports);
/// A finding for each of them.
Findings disk_findings(const std::vector<HostReport>& reports);

}  // namespace gputrain::doctor
