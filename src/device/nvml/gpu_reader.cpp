#include "gpu_reader.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace gputrain::device::nvml {
namespace {

template <typename Function>
std::string text_of(Function* function, Device device) {
  std::array<char, 128> text{};
  if (call(function, device, text.data(), static_cast<unsigned>(text.size() - 1)) != kSuccess) return {};
  return text.data();
}

/// Calls for one GPU, until one says that it is lost.
struct Questions {
  Device device;
  bool lost = false;

  template <typename... Parameters, typename... Arguments>
  bool ask(int (*function)(Device, Parameters...), Arguments... arguments) {
    if (lost) return false;
    const int answer = call(function, device, arguments...);
    lost = answer == kGpuIsLost;
    return answer == kSuccess;
  }

  /// Asks for a number, times `unit`.
  template <typename Number, typename... Parameters, typename... Arguments>
  std::optional<double> number(double unit, int (*function)(Device, Parameters...), Arguments... arguments) {
    Number value = 0;
    if (!ask(function, arguments..., &value)) return std::nullopt;
    return static_cast<double>(value) * unit;
  }
};

std::string comparable(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.find(':') == std::string::npos) return name;
  name.erase(0, std::min(name.find_first_not_of('0'), name.find(':')));  // the domain has 4 or 8 digits
  return name;
}

}  // namespace

GpuReading facts_of(const Library& library, Device device) {
  GpuReading gpu{.name = text_of(library.name, device), .uuid = text_of(library.uuid, device)};
  Questions questions{device};
  PciInfo pci{};
  if (questions.ask(library.pci_info, &pci)) {
    pci.bus_id.back() = '\0';
    gpu.pci_bus_id = pci.bus_id.data();
  }
  int major = 0, minor = 0;
  if (questions.ask(library.compute_capability, &major, &minor)) gpu.compute_capability = 10 * major + minor;
  gpu.power_limit_default_watts = questions.number<unsigned>(1e-3, library.power_limit_default);
  gpu.sm_clock_max_hertz = questions.number<unsigned>(1e6, library.clock_max, kSmClock);
  gpu.lost = questions.lost;
  return gpu;
}

void read(const Library& library, Device device, GpuReading& reading) {
  Questions questions{device};
  Utilization utilization{};
  if (questions.ask(library.utilization, &utilization)) reading.utilization = utilization.gpu / 100.0;
  Memory memory{};
  if (questions.ask(library.memory, &memory)) {
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    reading.memory_total_bytes = static_cast<int64_t>(memory.total);
  }
  unsigned mig = 0, mig_later = 0;
  if (questions.ask(library.mig_mode, &mig, &mig_later)) reading.mig_enabled = mig == 1;
  int ecc = 0, ecc_later = 0;
  if (questions.ask(library.ecc_mode, &ecc, &ecc_later)) reading.ecc_enabled = ecc == 1;
  reading.temperature_celsius = questions.number<unsigned>(1, library.temperature, 0);
  reading.power_watts = questions.number<unsigned>(1e-3, library.power);
  reading.power_limit_watts = questions.number<unsigned>(1e-3, library.power_limit);
  reading.energy_joules = questions.number<unsigned long long>(1e-3, library.energy);
  reading.sm_clock_hertz = questions.number<unsigned>(1e6, library.clock, kSmClock);
  reading.memory_clock_hertz = questions.number<unsigned>(1e6, library.clock, kMemoryClock);
  unsigned long long reasons = 0, errors = 0;
  if (questions.ask(library.throttle_reasons, &reasons)) reading.throttle_reasons = throttle_reasons(reasons);
  if (questions.ask(library.ecc_errors, kUncorrected, kSinceDriverLoad, &errors))
    reading.ecc_uncorrected = static_cast<int64_t>(errors);
  reading.lost = questions.lost;
}

std::vector<std::string> throttle_reasons(unsigned long long bits) {
  // The other bits are no fault: idle, clocks set by an application, clocks bound to those of another GPU or a display.
  static constexpr std::array<std::pair<unsigned long long, const char*>, 5> kReasons{{
      {0x04, "power cap"},
      {0x08, "hardware slowdown"},
      {0x20, "software thermal slowdown"},
      {0x40, "hardware thermal slowdown"},
      {0x80, "hardware power brake"},
  }};
  std::vector<std::string> words;
  for (const auto& [bit, reason] : kReasons) {
    if ((bits & bit) != 0) words.emplace_back(reason);
  }
  return words;
}

bool is_named(const GpuReading& gpu, const std::string& name) {
  const std::string wanted = comparable(name);
  return wanted == comparable(gpu.uuid) || wanted == comparable(gpu.pci_bus_id);
}

}  // namespace gputrain::device::nvml
