// Cores, and whether their governor holds the clock down.
#include <map>

#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {

Findings check_cpu(const Machine& machine) {
  const std::string cores = std::to_string(machine.cores);
  Finding found{.check = "cpu",
                .text = machine.cpu + "  " + counted(machine.cores, "core"),
                .facts = {{"cores", cores}, {"CPU", machine.cpu}}};
  const std::string folder = "/sys/devices/system/cpu";
  std::map<std::string, int> governors;
  for (const std::string& name : machine.list(folder)) {
    const std::string governor = machine.read(folder + "/" + name + "/cpufreq/scaling_governor");
    if (!governor.empty()) ++governors[governor];
  }
  if (governors.empty()) return {found};
  const std::string driver = machine.read(folder + "/cpu0/cpufreq/scaling_driver");
  // These drivers choose the clock themselves, and call that powersave.
  const bool chooses = driver == "intel_pstate" || driver == "amd-pstate-epp";
  std::string names;
  for (const auto& [governor, count] : governors) {
    names += (names.empty() ? "" : ", ") + governor;
    const bool is_slow = governor == "conservative" || (governor == "powersave" && !chooses);
    if (is_slow) found.verdict = Verdict::warn;
  }
  found.text += "  governor " + names;
  found.facts["CPU governor"] = names;
  if (found.verdict == Verdict::warn) {
    found.text += ": holds the clock down";
    found.fix = "sudo cpupower frequency-set -g performance";
  }
  return {found};
}

}  // namespace gputrain::doctor
