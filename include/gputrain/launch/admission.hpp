// Measures the hosts of a run before its first attempt, and refuses or leaves out those that are too slow.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gputrain/launch/hosts.hpp"

namespace gputrain::launch {

struct AdmissionRequest {
  HostPlan plan;
  AdmissionSpec spec;
  std::string device;            // of the job: auto, cpu, cuda
  std::filesystem::path folder;  // of the run, whose disk is measured
};

/// Returns the plan with the hosts that may take part. Each host measures itself in a process of its own, all at the
/// same time, and is compared with the best known of its kind. A host that cannot be measured counts as too slow. `say`
/// gets lines for the user. Throws Error(environment) if a host is refused, or too few are left. Call from the main
/// thread.
HostPlan admit(const AdmissionRequest& request, const std::function<void(const std::string&)>& say);

}  // namespace gputrain::launch
