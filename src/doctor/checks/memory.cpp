// Memory of the host.
#include <algorithm>
#include <map>
#include <sstream>

#include "gputrain/device/control_groups.hpp"
#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {

Findings check_memory(const Machine& machine) {
  std::map<std::string, int64_t> bytes;
  for (const std::string& line : machine.lines("/proc/meminfo")) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes) bytes[name] = kilobytes * 1024;
  }
  const int64_t machine_total = bytes["MemTotal:"];
  if (machine_total == 0) return {};
  const device::GroupLimits limits = device::group_limits(machine.path("/proc"), machine.path("/sys/fs/cgroup"));
  const int64_t total = std::min(machine_total, limits.memory_bytes);
  const int64_t available = std::min(bytes["MemAvailable:"], limits.room_bytes);
  const int64_t swapped = bytes["SwapTotal:"] - bytes["SwapFree:"];
  constexpr int64_t kGiB = int64_t{1} << 30;
  Finding found{
      .check = "memory",
      .text =
          monitor::bytes(total) +
          (total < machine_total ? " allowed here (container, batch system) of " + monitor::bytes(machine_total) : "") +
          ", " + monitor::bytes(available) + " available",
      .facts = {{"memory", std::to_string((total + kGiB / 2) / kGiB) + " GiB"}}};
  if (available < total / 10) {
    found.verdict = Verdict::warn;
    found.text += ": other processes hold the rest";
    found.fix = "ps aux --sort=-rss | head";
  } else if (swapped > kGiB) {
    found.verdict = Verdict::warn;
    found.text += "; " + monitor::bytes(swapped) + " are swapped out";
    found.fix = "sudo swapoff -a";
  }
  return {found};
}

}  // namespace gputrain::doctor
