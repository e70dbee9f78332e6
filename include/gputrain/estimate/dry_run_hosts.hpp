// Hosts that a job would use, as far as the job and the command line name them.
#pragma once

#include <string>

#include "gputrain/launch/hosts.hpp"

namespace gputrain::app {

struct DryRunHosts {
  int hosts = 0;           // 0: unknown
  int ranks_per_host = 0;  // on the first host; 0: unknown
  std::string text;        // "128 hosts x 8 ranks"
};

/// Counts the hosts. Throws Error(usage) if the job's hosts have too few ranks, or if the last host would not be full.
DryRunHosts plan_dry_run_hosts(const launch::LaunchSpec& spec, int world_size);

}  // namespace gputrain::app
