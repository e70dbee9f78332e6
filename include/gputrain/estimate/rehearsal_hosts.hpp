// The hosts that a job would be started on, as far as the job and the command line name them.
#pragma once

#include <string>

#include "gputrain/launch/hosts.hpp"

namespace gputrain::app {

struct RehearsalHosts {
  int hosts = 0;           // 0: not said
  int ranks_per_host = 0;  // on the first one; 0: not said
  std::string text;        // "128 hosts x 8 ranks"
};

/// Throws Error(usage) when the job's hosts do not hold so many ranks, or ranks do not fill whole hosts.
RehearsalHosts plan_rehearsal_hosts(const launch::LaunchSpec& spec, int world_size);

}  // namespace gputrain::app
