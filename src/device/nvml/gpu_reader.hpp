// Reads one GPU through the management library.
#pragma once

#include <string>
#include <vector>

#include "gputrain/device/gpu_readings.hpp"
#include "library.hpp"

namespace gputrain::device::nvml {

/// Reads the values that do not change while the GPU is there, or `lost`.
GpuReading facts_of(const Library& library, Device device);

/// Reads everything else into `reading`, except its errors (Xid). Returns as soon as the GPU turns out to be lost.
void read(const Library& library, Device device, GpuReading& reading);

/// Translates the bits that the library returns into the reasons that slow a busy GPU down.
std::vector<std::string> throttle_reasons(unsigned long long bits);

/// Returns whether a UUID or a PCI bus id, in the form of CUDA ("0000:3b:00.0") or NVML ("00000000:3B:00.0"), means
/// this GPU.
bool is_named(const GpuReading& gpu, const std::string& name);

}  // namespace gputrain::device::nvml
