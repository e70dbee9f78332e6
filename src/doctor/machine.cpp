#include "gputrain/doctor/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/device/host.hpp"

namespace gputrain::doctor {
namespace {

namespace fs = std::filesystem;

std::optional<Space> space_of(const fs::path& folder) {
  std::error_code failure;
  const auto space = fs::space(folder, failure);
  if (failure) return std::nullopt;
  return Space{static_cast<int64_t>(space.capacity), static_cast<int64_t>(space.available)};
}

}  // namespace

std::string Machine::read(const std::string& absolute) const {
  std::ifstream file(path(absolute));
  std::stringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  return all;
}

std::vector<std::string> Machine::lines(const std::string& absolute) const {
  std::ifstream file(path(absolute));
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) found.push_back(line);
  return found;
}

std::vector<std::string> Machine::list(const std::string& absolute) const {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(path(absolute), unreadable))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

bool Machine::exists(const std::string& absolute) const {
  std::error_code unreadable;
  return fs::exists(path(absolute), unreadable);
}

int Machine::nvidia_devices() const {
  int count = 0;
  for (const std::string& device : list("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + device;
    const bool is_display = read(folder + "/class").starts_with("0x03");  // a bridge or a NIC has another class
    if (is_display && read(folder + "/vendor") == "0x10de") ++count;
  }
  return count;
}

Machine look_at_this_machine(Software software) {
  constexpr std::chrono::seconds kPatience{10};
  Machine machine;
  machine.software = std::move(software);
  const device::GpuSampler sampler({});
  machine.cores = device::available_cores();
  machine.cpu = device::cpu_name();
  machine.address = comm::outward_address();
  if (!machine.address.empty()) machine.interface = comm::interface_of(machine.address);
  machine.variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  machine.space = space_of;
  machine.gpus_hang = !sampler.wait_for(1, std::chrono::steady_clock::now() + kPatience);
  machine.gpus = sampler.latest();
  return machine;
}

}  // namespace gputrain::doctor
