// All checks of one machine; each is a pure function of what it looks at, in a file of src/doctor/checks/.
#pragma once

#include "gputrain/doctor/finding.hpp"
#include "gputrain/doctor/machine.hpp"

namespace gputrain::doctor {

Findings check_software(const Machine& machine);
Findings check_driver(const Machine& machine);
Findings check_gpus(const Machine& machine);
Findings check_visible_gpus(const Machine& machine);
Findings check_xids(const Machine& machine);
Findings check_cpu(const Machine& machine);
Findings check_numa(const Machine& machine);
Findings check_memory(const Machine& machine);
Findings check_shared_memory(const Machine& machine);
Findings check_limits(const Machine& machine);
Findings check_network(const Machine& machine);
Findings check_infiniband(const Machine& machine);
Findings check_congestion_control(const Machine& machine);
Findings check_disk(const Machine& machine);

/// Makes all checks, in the order of the page.
Findings check_all(const Machine& machine);

}  // namespace gputrain::doctor
