// NUMA: memory nodes, on which of them the GPUs are, and whether the kernel moves pages between nodes.
#include <algorithm>
#include <cctype>

#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {
namespace {

/// Returns "0 0 1 1", in the order of the GPUs; "?" if the kernel does not say.
std::string nodes_of_gpus(const Machine& machine) {
  std::string text;
  for (const device::GpuReading& gpu : machine.gpus.gpus) {
    const std::string& id = gpu.pci_bus_id;  // "00000000:3B:00.0"; sysfs has "0000:3b:00.0"
    const std::string name = id.size() > 12 ? lower_case(id.substr(id.size() - 12)) : lower_case(id);
    const std::string node = machine.read("/sys/bus/pci/devices/" + name + "/numa_node");
    text += (text.empty() ? "" : " ") + (node.empty() || node.front() == '-' ? "?" : node);
  }
  return text;
}

}  // namespace

Findings check_numa(const Machine& machine) {
  const auto names = machine.list("/sys/devices/system/node");
  const auto nodes = std::ranges::count_if(names, [](const std::string& name) {
    return name.size() > 4 && name.starts_with("node") && std::isdigit(static_cast<unsigned char>(name[4])) != 0;
  });
  if (nodes == 0) return {};
  Finding found{
      .check = "numa", .text = counted(nodes, "node") + " of memory", .facts = {{"NUMA nodes", std::to_string(nodes)}}};
  if (nodes == 1) return {found};
  if (machine.has_gpus()) found.text += "; GPUs on nodes " + nodes_of_gpus(machine);
  if (machine.read("/proc/sys/kernel/numa_balancing") == "1") {
    found.verdict = Verdict::warn;
    found.text += "; the kernel moves pages between them while threads run";
    found.fix = "sudo sysctl kernel.numa_balancing=0";
  }
  return {found};
}

}  // namespace gputrain::doctor
