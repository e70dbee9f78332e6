// NVIDIA's driver: whether it is there, answers, and is new enough for the CUDA of this program.
#include <array>

#include "../version_number.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {
namespace {

/// The driver that came with a version of CUDA. Within one major version an older driver does too, down to that of the
/// first version; only code that is compiled at run time (PTX) needs the newer one. From the release notes of the CUDA
/// toolkit, table of driver versions.
struct MinimumDriver {
  int cuda;
  const char* driver;
};
constexpr std::array<MinimumDriver, 10> kMinimumDrivers{{{12000, "525.60.13"},
                                                         {12010, "530.30.02"},
                                                         {12020, "535.54.03"},
                                                         {12030, "545.23.06"},
                                                         {12040, "550.54.14"},
                                                         {12050, "555.42.02"},
                                                         {12060, "560.28.03"},
                                                         {12080, "570.26"},
                                                         {12090, "575.51.03"},
                                                         {13000, "580.65.06"}}};

/// Returns the least driver for the newest CUDA up to `cuda` with its major number, or for the first one if
/// `any_minor`.
std::string minimum_driver(int cuda, bool any_minor) {
  std::string found;
  for (const auto& [version, driver] : kMinimumDrivers) {
    const bool is_of_major = version / 1000 == cuda / 1000 && version <= cuda;
    if (is_of_major && (found.empty() || !any_minor)) found = driver;
  }
  return found;
}

std::string install(const std::string& least) {
  const std::string branch = least.substr(0, least.find('.'));
  return "sudo apt-get install nvidia-driver-" + (branch.empty() ? "580" : branch) + " && sudo reboot";
}

Finding without_driver(const Machine& machine) {
  const int devices = machine.nvidia_devices();
  if (devices == 0)
    return {.check = "driver", .text = "no NVIDIA GPU here, no driver needed: training goes on the CPU"};
  const bool wants_gpus = machine.software.cuda > 0;
  return {.check = "driver",
          .verdict = wants_gpus ? Verdict::bad : Verdict::warn,
          .text = counted(devices, "NVIDIA GPU") + " on the bus, but " + machine.gpus.obstacle,
          .fix = machine.exists("/.dockerenv") ? "docker run --gpus all ..."
                 : machine.exists("/proc/driver/nvidia/version")
                     ? "nvidia-smi (a driver updated while it was loaded needs a reboot)"
                     : install(minimum_driver(machine.software.cuda, false))};
}

}  // namespace

Findings check_driver(const Machine& machine) {
  if (machine.gpus_hang) {
    return {{.check = "driver",
             .verdict = Verdict::bad,
             .text = "the NVIDIA driver has not answered within 10 s",
             .fix = "sudo dmesg | grep -e NVRM -e Xid; a reboot if it stays so"}};
  }
  if (!machine.gpus.obstacle.empty()) return {without_driver(machine)};
  const std::string& driver = machine.gpus.driver_version;
  Finding found{.check = "driver", .facts = {{"driver", driver}}};
  found.text = "NVIDIA driver " + driver + ", for CUDA up to " + cuda_text(machine.gpus.cuda_version.value_or(0));
  const int cuda = machine.software.cuda;
  const std::string least = minimum_driver(cuda, true), own = minimum_driver(cuda, false);
  if (cuda == 0) {
    found.verdict = Verdict::warn;
    found.text += "; but this gputrain was built without CUDA and trains on the CPU";
    found.fix = "cmake --preset cuda && cmake --build --preset cuda";
  } else if (!least.empty() && version_parts(driver) < version_parts(least)) {
    found.verdict = Verdict::bad;
    found.text += ": CUDA " + cuda_text(cuda) + " needs at least " + least;
    found.fix = install(own);
  } else if (!own.empty() && version_parts(driver) < version_parts(own)) {
    found.verdict = Verdict::warn;
    found.text += ": enough for CUDA " + cuda_text(cuda) + ", which came with " + own;
    found.fix = install(own);
  } else {
    found.text += ": enough for CUDA " + cuda_text(cuda);
  }
  if (cuda > 0 && !machine.software.gpu_obstacle.empty()) {
    found.verdict = Verdict::bad;
    found.text += "; but " + machine.software.gpu_obstacle;
    if (found.fix.empty()) found.fix = "nvidia-smi";
  }
  return {found};
}

}  // namespace gputrain::doctor
