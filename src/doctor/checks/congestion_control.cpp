// TCP's congestion control and the largest buffers of sockets.
#include <algorithm>
#include <cstdlib>

#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {

Findings check_congestion_control(const Machine& machine) {
  constexpr int64_t kSmallBuffer = int64_t{1} << 20;
  const std::string control = machine.read("/proc/sys/net/ipv4/tcp_congestion_control");
  if (control.empty()) return {};
  Finding found{.check = "tcp", .text = "congestion control " + control, .facts = {{"congestion control", control}}};
  const std::string limits = machine.read("/proc/sys/net/ipv4/tcp_rmem");  // least, usual, most
  const size_t last = limits.find_last_of(" \t");
  const int64_t most = last == std::string::npos ? 0 : std::atoll(limits.c_str() + last);
  if (most > 0) found.text += "  receive buffers up to " + monitor::bytes(most);
  if (most > 0 && most < kSmallBuffer) {
    found.verdict = Verdict::warn;
    found.text += ": too small for a fast network";
    found.fix = "sudo sysctl net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216'";
  }
  return {found};
}

}  // namespace gputrain::doctor
