#include "library.hpp"

#include <dlfcn.h>

namespace gputrain::device::nvml {
namespace {

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  if (function == nullptr) function = reinterpret_cast<Function*>(::dlsym(library, name));
}

void find_readings(void* library, Library& calls) {
  find(library, "nvmlDeviceGetUtilizationRates", calls.utilization);
  find(library, "nvmlDeviceGetMemoryInfo", calls.memory);
  find(library, "nvmlDeviceGetTemperature", calls.temperature);
  find(library, "nvmlDeviceGetPowerUsage", calls.power);
  find(library, "nvmlDeviceGetEnforcedPowerLimit", calls.power_limit);
  find(library, "nvmlDeviceGetPowerManagementDefaultLimit", calls.power_limit_default);
  find(library, "nvmlDeviceGetTotalEnergyConsumption", calls.energy);
  find(library, "nvmlDeviceGetClockInfo", calls.clock);
  find(library, "nvmlDeviceGetMaxClockInfo", calls.clock_max);
  find(library, "nvmlDeviceGetCurrentClocksEventReasons", calls.throttle_reasons);
  find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", calls.throttle_reasons);  // the name of older drivers
  find(library, "nvmlDeviceGetTotalEccErrors", calls.ecc_errors);
  find(library, "nvmlEventSetCreate", calls.new_event_set);
  find(library, "nvmlDeviceRegisterEvents", calls.register_events);
  find(library, "nvmlEventSetWait_v2", calls.wait_for_event);
  find(library, "nvmlEventSetFree", calls.free_event_set);
}

}  // namespace

std::optional<Library> load(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Library calls{};
  find(library, "nvmlInit_v2", calls.init);
  find(library, "nvmlShutdown", calls.shutdown);
  find(library, "nvmlSystemGetDriverVersion", calls.driver_version);
  find(library, "nvmlSystemGetCudaDriverVersion_v2", calls.cuda_version);
  find(library, "nvmlDeviceGetCount_v2", calls.count);
  find(library, "nvmlDeviceGetHandleByIndex_v2", calls.device);
  find(library, "nvmlDeviceGetName", calls.name);
  find(library, "nvmlDeviceGetUUID", calls.uuid);
  find(library, "nvmlDeviceGetPciInfo_v3", calls.pci_info);
  find(library, "nvmlDeviceGetCudaComputeCapability", calls.compute_capability);
  find(library, "nvmlDeviceGetMigMode", calls.mig_mode);
  find(library, "nvmlDeviceGetEccMode", calls.ecc_mode);
  find_readings(library, calls);
  return calls;
}

}  // namespace gputrain::device::nvml
