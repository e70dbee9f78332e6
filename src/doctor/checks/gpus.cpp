// Each GPU: whether it answers, can be used by this program, and runs at its full speed.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {
namespace {

constexpr int kOldestCapability = 75;  // LibTorch has kernels from there on

/// Makes the finding at least as bad, and adds why.
void complain(Finding& finding, Verdict verdict, const std::string& why, const std::string& fix) {
  finding.verdict = std::max(finding.verdict, verdict);
  finding.text += "; " + why;
  if (finding.fix.empty()) finding.fix = fix;
}

std::string state_of(const device::GpuReading& gpu) {
  std::string text = gpu.name;
  if (gpu.memory_total_bytes) text += "  " + monitor::bytes(*gpu.memory_total_bytes);
  if (gpu.temperature_celsius) text += fmt::format("  {:.0f} C", *gpu.temperature_celsius);
  if (gpu.power_watts && gpu.power_limit_watts)
    text += fmt::format("  {:.0f} of {:.0f} W", *gpu.power_watts, *gpu.power_limit_watts);
  if (gpu.sm_clock_hertz) text += fmt::format("  {:.0f} MHz", *gpu.sm_clock_hertz / 1e6);
  if (gpu.ecc_enabled) text += *gpu.ecc_enabled ? "  ECC" : "  no ECC";
  if (gpu.mig_enabled.value_or(false)) text += "  MIG";
  return text;
}

void check_speed(Finding& found, const device::GpuReading& gpu, const std::string& select) {
  for (const std::string& reason : gpu.throttle_reasons) {
    const bool is_heat = reason.find("thermal") != std::string::npos;
    complain(found, reason == "power cap" ? Verdict::ok : Verdict::warn, "clocks held down now: " + reason,
             is_heat ? "check fans and airflow; nvidia-smi" + select + "-q -d TEMPERATURE,PERFORMANCE"
                     : "nvidia-smi" + select + "-q -d POWER,PERFORMANCE");
  }
  if (gpu.power_limit_watts && gpu.power_limit_default_watts &&
      *gpu.power_limit_watts < *gpu.power_limit_default_watts - 1) {
    complain(found, Verdict::warn, fmt::format("power capped below its usual {:.0f} W", *gpu.power_limit_default_watts),
             fmt::format("sudo nvidia-smi{}-pl {:.0f}", select, *gpu.power_limit_default_watts));
  }
}

Finding check_gpu(size_t index, const device::GpuReading& gpu) {
  const std::string number = std::to_string(index), select = " -i " + number + " ";
  Finding found{.check = "gpu " + number, .text = state_of(gpu)};
  found.facts = {{"GPU " + number, gpu.name}};
  if (gpu.lost) {
    found.text = gpu.name.empty() ? "a GPU" : gpu.name;
    complain(found, Verdict::bad, "lost: it has fallen off the bus",
             "sudo reboot; if it comes back, the card or its slot is broken");
    return found;
  }
  if (gpu.power_limit_watts)
    found.facts["power limit of GPU " + number] = fmt::format("{:.0f} W", *gpu.power_limit_watts);
  if (gpu.ecc_enabled) found.facts["ECC of GPU " + number] = *gpu.ecc_enabled ? "on" : "off";
  if (gpu.mig_enabled) found.facts["MIG of GPU " + number] = *gpu.mig_enabled ? "on" : "off";
  if (gpu.compute_capability.value_or(kOldestCapability) < kOldestCapability) {
    complain(found, Verdict::bad,
             fmt::format("compute capability {}.{}, but LibTorch has kernels from 7.5 on", *gpu.compute_capability / 10,
                         *gpu.compute_capability % 10),
             "set device: cpu, or hide it by CUDA_VISIBLE_DEVICES");
  }
  if (gpu.ecc_uncorrected.value_or(0) > 0) {
    complain(
        found, Verdict::bad,
        std::to_string(*gpu.ecc_uncorrected) + " memory errors that ECC could not correct since the driver was loaded",
        "sudo nvidia-smi" + select + "-r, and nvidia-smi" + select + "-q -d ROW_REMAPPER for its pending repairs");
  }
  check_speed(found, gpu, select);
  if (gpu.memory_used_bytes && gpu.memory_total_bytes && *gpu.memory_used_bytes > *gpu.memory_total_bytes / 10) {
    complain(found, Verdict::warn, monitor::bytes(*gpu.memory_used_bytes) + " of its memory are in use",
             "nvidia-smi" + select + "shows by which processes");
  }
  if (gpu.mig_enabled.value_or(false)) {
    complain(found, Verdict::warn, "it is split (MIG), and a rank gets one part",
             "sudo nvidia-smi" + select + "-mig 0 for the whole GPU");
  }
  return found;
}

}  // namespace

Findings check_gpus(const Machine& machine) {
  Findings findings;
  for (size_t i = 0; i < machine.gpus.gpus.size(); ++i) findings.push_back(check_gpu(i, machine.gpus.gpus[i]));
  const bool has_driver = machine.gpus.obstacle.empty() && !machine.gpus_hang;
  if (has_driver && findings.empty() && machine.nvidia_devices() > 0) {
    findings.push_back({.check = "gpus",
                        .verdict = Verdict::bad,
                        .text = "the driver sees none of the GPUs on the bus",
                        .fix = "sudo dmesg | grep -e NVRM -e Xid"});
  }
  return findings;
}

}  // namespace gputrain::doctor
