// Examines several hosts through ssh, as `gputrain launch` reaches them, and what is between them.
#pragma once

#include <string>
#include <vector>

#include "gputrain/doctor/comparison.hpp"
#include "gputrain/launch/hosts.hpp"

namespace gputrain::doctor {

struct ExaminedHosts {
  std::vector<HostReport> reports;  // in the order of the hosts
  Findings between;                 // clocks, ports that are closed, differences
};

/// Starts `gputrain` with `arguments` on every host, at the path that it has here; it must serve() there. Call from the
/// main thread.
ExaminedHosts examine(const std::vector<launch::Host>& hosts, const std::vector<std::string>& arguments);

/// The other side: prints `report`, one line, and answers questions from stdin until it ends.
///   time                    seconds since 1970
///   listen ADDRESS          the number of a port
///   reach ADDRESS PORT      "ok", or why not
void serve(const std::string& report);

}  // namespace gputrain::doctor
