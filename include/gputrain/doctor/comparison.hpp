// What differs between hosts that should be equal.
#pragma once

#include <string>
#include <vector>

#include "gputrain/doctor/finding.hpp"

namespace gputrain::doctor {

struct HostReport {
  std::string host;
  Findings findings = {};
  std::string problem = {};  // why it could not be examined; empty: it was
  std::string address = {};  // of its packets to other hosts
};

/// One finding for each fact that is not the same everywhere. It names the odd hosts, if more than half agree.
Findings compare(const std::vector<HostReport>& reports);

/// The finding about a clock that is `seconds` ahead of ours.
Finding clock_finding(const std::string& host, double seconds);

}  // namespace gputrain::doctor
