#include "gputrain/device/host_load.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "gputrain/device/host.hpp"

namespace gputrain::device {

double HostLoad::cpu_ratio() {
  const Times now = times(), before = std::exchange(last_, now);
  if (now.all <= before.all) return std::nan("");
  const double idle = static_cast<double>(now.idle - before.idle) / static_cast<double>(now.all - before.all);
  return std::clamp(1 - idle, 0.0, 1.0);
}

int64_t HostLoad::memory_used_bytes() { return std::max<int64_t>(0, host_memory_bytes() - available_host_bytes()); }

/// Reads the line "cpu  user nice system idle iowait irq softirq steal guest guest_nice"; guests are in the first two.
HostLoad::Times HostLoad::times() const {
  std::ifstream file(proc_ / "stat");
  std::string word;
  file >> word;
  Times times;
  int64_t ticks = 0;
  for (int column = 0; column < 8 && file >> ticks; ++column) {
    times.all += ticks;
    if (column == 3 || column == 4) times.idle += ticks;
  }
  return times;
}

}  // namespace gputrain::device
