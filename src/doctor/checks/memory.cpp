// Memory of the host.
#include <map>
#include <sstream>

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
  const int64_t total = bytes["MemTotal:"], available = bytes["MemAvailable:"];
  if (total == 0) return {};
  const int64_t swapped = bytes["SwapTotal:"] - bytes["SwapFree:"];
  constexpr int64_t kGiB = int64_t{1} << 30;
  Finding found{.check = "memory",
                .text = monitor::bytes(total) + ", " + monitor::bytes(available) + " available",
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
