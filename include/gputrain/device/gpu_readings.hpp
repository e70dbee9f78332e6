// Readings of the GPUs of this host: temperature, power, clocks, memory, errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gputrain::device {

/// One GPU at one moment. Values that its driver does not tell are empty.
struct GpuReading {
  std::string name, uuid, pci_bus_id;            // "NVIDIA H100 80GB HBM3", "GPU-2b1f...", "00000000:3B:00.0"
  std::optional<int> compute_capability;         // 90 for 9.0
  std::optional<bool> mig_enabled, ecc_enabled;  // MIG: the GPU is split into smaller ones
  std::optional<double> power_limit_default_watts, sm_clock_max_hertz;

  bool lost = false;                  // fell off the bus: it answers nothing more until the host restarts
  std::optional<double> utilization;  // part of the time in which a kernel ran, 0..1
  std::optional<int64_t> memory_used_bytes, memory_total_bytes;
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  std::optional<double> energy_joules;  // since the driver was loaded
  std::optional<double> sm_clock_hertz, memory_clock_hertz;
  std::vector<std::string> throttle_reasons;  // why clocks are held down: "power cap", "hardware thermal slowdown"
  std::optional<int64_t> ecc_uncorrected;     // memory errors since the driver was loaded
  std::optional<int64_t> latest_xid;          // the last error that the driver reported since the sampler was made
};

/// All GPUs that a sampler watches.
struct GpuReadings {
  int64_t number = 0;  // how many times they have been read; 0: not yet
  std::chrono::steady_clock::time_point taken{};
  std::vector<GpuReading> gpus;
  std::string driver_version;       // "580.65.06"
  std::optional<int> cuda_version;  // the newest one that the driver supports, 13000 for 13.0
  std::string obstacle;             // why there are no GPUs; empty: no obstacle
};

/// Reads the GPUs of this host again and again through NVIDIA's management library (NVML), in a thread of its own. The
/// environment variable GPUTRAIN_NVML names another library than libnvidia-ml.so.1. Nothing here throws: no library, no
/// driver and failing calls leave readings empty.
class GpuSampler {
 public:
  struct Options {
    double interval_seconds = 5;
    std::vector<std::string> gpus = {};  // UUIDs or PCI bus ids; empty: all
  };

  explicit GpuSampler(Options options);
  /// Waits for a call of the library for 0.2 s at most, and leaves it behind if it takes longer.
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  /// Returns the newest readings; never waits for a GPU.
  GpuReadings latest() const;
  /// Waits until the GPUs have been read `number` times, or an obstacle is known. False: `deadline` has come first.
  bool wait_for(int64_t number, std::chrono::steady_clock::time_point deadline) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gputrain::device
