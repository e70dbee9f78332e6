// The network interfaces, and the one that ranks of several hosts would use.
#include <algorithm>
#include <cstdlib>

#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {
namespace {

struct Interface {
  std::string name, state, mtu;
  int megabits = 0;  // 0: not known
  bool is_physical = false;
};

std::vector<Interface> interfaces_of(const Machine& machine) {
  std::vector<Interface> found;
  for (const std::string& name : machine.list("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    if (name == "lo" || machine.read(folder + "/mtu").empty()) continue;
    found.push_back({.name = name,
                     .state = machine.read(folder + "/operstate"),
                     .mtu = machine.read(folder + "/mtu"),
                     .megabits = std::max(0, std::atoi(machine.read(folder + "/speed").c_str())),
                     .is_physical = machine.exists(folder + "/device")});
  }
  return found;
}

std::string speed_of(const Interface& interface) {
  if (interface.megabits == 0) return {};
  return interface.megabits >= 1000 ? "  " + std::to_string(interface.megabits / 1000) + " Gbit/s"
                                    : "  " + std::to_string(interface.megabits) + " Mbit/s";
}

}  // namespace

Findings check_network(const Machine& machine) {
  constexpr int kSlow = 1000;
  if (machine.interface.empty())
    return {{.check = "network", .text = "no way out of this host: ranks must all be here"}};
  Finding found{.check = "network"};
  const Interface* chosen = nullptr;
  const auto all = interfaces_of(machine);
  for (const Interface& each : all) {
    if (each.name == machine.interface) chosen = &each;
  }
  found.text = "other hosts reach this one over " + machine.interface + " (" + machine.address + ")";
  if (chosen == nullptr) return {found};
  found.text += speed_of(*chosen) + "  MTU " + chosen->mtu;
  found.facts = {{"MTU", chosen->mtu}, {"network speed", speed_of(*chosen)}};
  const auto complain = [&](const std::string& why, const std::string& fix) {
    found.verdict = Verdict::warn;
    found.text += "; " + why;
    if (found.fix.empty()) found.fix = fix;
  };
  if (chosen->megabits > 0 && chosen->megabits < kSlow)
    complain("slow: a cable or a port is damaged, or set so", "sudo ethtool " + chosen->name);
  for (const Interface& each : all) {
    if (!each.is_physical || &each == chosen) continue;
    if (each.state == "up" && each.megabits > chosen->megabits && chosen->megabits > 0)
      complain("faster: " + each.name + speed_of(each),
               "set MASTER_ADDR, or --hosts, to an address in the network of " + each.name);
  }
  return {found};
}

}  // namespace gputrain::doctor
