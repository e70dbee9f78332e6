#include <array>
#include <iterator>
#include <utility>

#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {

Findings check_all(const Machine& machine) {
  constexpr std::array kChecks{check_software,
                               check_driver,
                               check_gpus,
                               check_visible_gpus,
                               check_xids,
                               check_cpu,
                               check_numa,
                               check_memory,
                               check_shared_memory,
                               check_limits,
                               check_network,
                               check_infiniband,
                               check_congestion_control,
                               check_disk};
  Findings all;
  for (const auto check : kChecks) {
    for (Finding& finding : check(machine)) all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace gputrain::doctor
