// InfiniBand ports, and whether GPUs can use them directly.
#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {

Findings check_infiniband(const Machine& machine) {
  const std::string root = "/sys/class/infiniband";
  Finding found{.check = "ib"};
  int ports = 0;
  std::string rates, down;
  for (const std::string& device : machine.list(root)) {
    for (const std::string& port : machine.list(root + "/" + device + "/ports")) {
      const std::string folder = root + "/" + device + "/ports/" + port;
      ++ports;
      if (machine.read(folder + "/state").find("ACTIVE") == std::string::npos)
        down += (down.empty() ? "" : ", ") + device + ":" + port;
      else
        rates += (rates.empty() ? "" : ", ") + device + " " + machine.read(folder + "/rate");
    }
  }
  if (ports == 0) return {};
  found.text = counted(ports, "port") + (rates.empty() ? "" : ": " + rates);
  found.facts = {{"InfiniBand", rates}};
  if (!down.empty()) {
    found.verdict = Verdict::warn;
    found.text += "; not active: " + down;
    found.fix = "ibstat, and check the cable and the subnet manager";
  }
  bool has_peer_memory = false;
  for (const std::string& line : machine.lines("/proc/modules")) {
    has_peer_memory = has_peer_memory || line.starts_with("nvidia_peermem ");
  }
  if (machine.has_gpus() && !has_peer_memory) {
    found.verdict = Verdict::warn;
    found.text += "; data of GPUs goes through host memory: nvidia_peermem is not loaded";
    if (found.fix.empty()) found.fix = "sudo modprobe nvidia-peermem";
  }
  return {found};
}

}  // namespace gputrain::doctor
