// The functions of NVIDIA's management library (NVML) that we use, found at run time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gputrain::device::nvml {

// Values that every call returns.
constexpr int kSuccess = 0;
constexpr int kFunctionNotFound = 13;
constexpr int kGpuIsLost = 15;

using Device = struct DeviceTag*;
using EventSet = struct EventSetTag*;

struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
struct PciInfo {
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
struct Event {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr int kUncorrected = 1, kSinceDriverLoad = 0;
constexpr unsigned long long kXidEvent = 8;

/// The functions of the library. Every pointer may be null: older drivers lack the newer functions.
struct Library {
  int (*init)();
  int (*shutdown)();
  int (*driver_version)(char*, unsigned);
  int (*cuda_version)(int*);
  int (*count)(unsigned*);
  int (*device)(unsigned, Device*);
  int (*name)(Device, char*, unsigned);
  int (*uuid)(Device, char*, unsigned);
  int (*pci_info)(Device, PciInfo*);
  int (*compute_capability)(Device, int*, int*);
  int (*mig_mode)(Device, unsigned*, unsigned*);  // now, after a reset
  int (*ecc_mode)(Device, int*, int*);            // now, after a reset
  int (*utilization)(Device, Utilization*);
  int (*memory)(Device, Memory*);
  int (*temperature)(Device, int, unsigned*);
  int (*power)(Device, unsigned*);  // milliwatts, here and below
  int (*power_limit)(Device, unsigned*);
  int (*power_limit_default)(Device, unsigned*);
  int (*energy)(Device, unsigned long long*);  // millijoules
  int (*clock)(Device, int, unsigned*);        // megahertz
  int (*clock_max)(Device, int, unsigned*);    // megahertz
  int (*throttle_reasons)(Device, unsigned long long*);
  int (*ecc_errors)(Device, int, int, unsigned long long*);
  int (*new_event_set)(EventSet*);
  int (*register_events)(Device, unsigned long long, EventSet);
  int (*wait_for_event)(EventSet, Event*, unsigned);  // milliseconds
  int (*free_event_set)(EventSet);
};

/// Calls a function that may be missing.
template <typename... Parameters, typename... Arguments>
int call(int (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kFunctionNotFound : function(arguments...);
}

/// Loads the library; empty if it is not there. It stays loaded until the process ends: a call of it may never return.
std::optional<Library> load(const std::string& path);

}  // namespace gputrain::device::nvml
