// A machine made of files in a folder, for the checks to look at.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor::testing {

/// A fine machine with two GPUs and without any files.
class MadeMachine : public ::testing::Test {
 protected:
  MadeMachine() : root_(::testing::TempDir() + "doctor-" + std::to_string(::getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    machine_.root = root_;
    machine_.software = {
        .gputrain = "0.1.0", .torch = "2.11.0", .cuda = 13000, .cudnn = "9.15", .nccl = "2.28.9", .usable_gpus = 2};
    machine_.gpus = {.number = 1, .driver_version = "580.65.06", .cuda_version = 13000};
    device::GpuReading gpu{.name = "NVIDIA H100", .compute_capability = 90, .power_limit_default_watts = 700};
    gpu.pci_bus_id = "00000000:3A:00.0";
    gpu.power_limit_watts = 700;
    gpu.memory_total_bytes = int64_t{80} << 30;
    gpu.memory_used_bytes = int64_t{1} << 20;
    machine_.gpus.gpus = {gpu, gpu};
    machine_.space = [this](const std::filesystem::path&) { return space_; };
  }
  ~MadeMachine() override { std::filesystem::remove_all(root_); }

  void write(const std::string& absolute, const std::string& text) const {
    const std::filesystem::path path = machine_.path(absolute);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void add_nvidia_device() const {
    write("/sys/bus/pci/devices/0000:3a:00.0/class", "0x030200");
    write("/sys/bus/pci/devices/0000:3a:00.0/vendor", "0x10de");
  }
  /// The only finding of a check.
  Finding only(Findings (*check)(const Machine&)) const {
    Findings findings = check(machine_);
    EXPECT_EQ(findings.size(), 1U);
    return findings.empty() ? Finding{} : findings.front();
  }

  const std::string root_;
  Machine machine_;
  std::optional<Space> space_ = Space{int64_t{64} << 30, int64_t{64} << 30};
};

}  // namespace gputrain::doctor::testing
