// The machine that the checks look at: files below a root folder, the GPUs, and the software of this program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/core/process.hpp"
#include "gputrain/device/gpu_readings.hpp"

namespace gputrain::doctor {

struct Software {
  std::string gputrain, torch;  // "0.1.0", "2.11.0"
  std::string build;            // that of gputrain, see build_id(); empty: unknown
  int cuda = 0;                 // 13000 for 13.0; 0: a build without CUDA
  std::string cudnn, nccl;      // "9.15", "2.28.9"
  std::string gpu_obstacle;     // why CUDA cannot use GPUs that are there
  int usable_gpus = 0;          // number that CUDA counts
};

struct Space {
  int64_t total_bytes = 0, free_bytes = 0;
};

/// The size of a job's checkpoints, and their folder.
struct PlannedCheckpoints {
  std::string folder;                  // the existing part of `run_folder`
  std::string run_folder = {};         // absolute
  bool shares_saves = false;           // ranks of all hosts write parts of each checkpoint
  int64_t bytes = 0;                   // size of one checkpoint
  std::vector<std::string> shortages;  // flaws of the disks, in words
  bool none_fits = false;
  double write_bytes_per_second = 0;  // measured below the folder; 0: could not be
};

/// This machine, or that of a test, which has a folder of its own for /.
struct Machine {
  std::filesystem::path root = "/";
  Software software = {};
  device::GpuReadings gpus = {};
  bool gpus_hang = false;  // the driver gave no readings in time
  int cores = 1;
  std::string cpu = {};
  std::string address = {}, interface = {};  // those of packets that leave this host; empty: no way out
  std::optional<PlannedCheckpoints> planned = {};
  Lookup variable = [](const char*) { return std::optional<std::string>(); };
  std::function<std::optional<Space>(const std::filesystem::path&)> space = {};

  std::filesystem::path path(const std::string& absolute) const { return root / absolute.substr(1); }
  /// Returns the file without the line end; empty if it cannot be read.
  std::string read(const std::string& absolute) const;
  std::vector<std::string> lines(const std::string& absolute) const;
  /// Returns names in a folder, sorted.
  std::vector<std::string> list(const std::string& absolute) const;
  bool exists(const std::string& absolute) const;
  /// NVIDIA's GPUs on the PCI bus, with or without a driver.
  int nvidia_devices() const;
  bool has_gpus() const { return !gpus.gpus.empty(); }
};

/// Returns the number that the linker has given to the library of this program: equal for equal files. Empty: none.
std::string build_id();

/// Looks at this machine now: waits up to ten seconds for the driver's readings.
Machine look_at_this_machine(Software software);

}  // namespace gputrain::doctor
