// Measures how fast a machine is, in less than a minute.
#pragma once

#include <filesystem>
#include <string>

#include "gputrain/doctor/best_rates.hpp"
#include "gputrain/doctor/finding.hpp"
#include "gputrain/launch/machine_rates.hpp"

namespace gputrain::doctor {

struct RatesRequest {
  std::string device = "auto";         // auto, cpu, cuda: all GPUs
  std::filesystem::path folder = ".";  // on the disk to be measured
  double least_percent = 80;           // less of the best known is measured again: something may have disturbed
};

/// Measures matrix products, copies in memory and to GPUs, writing to the disk. Throws Error(environment).
launch::MachineRates measure_rates(const RatesRequest& request, const BestRates& best);

/// Returns one finding for each rate; those with less than `least_percent` of the best known are bad.
Findings rate_findings(const launch::MachineRates& machine, double least_percent);

/// Returns "61.2 GFLOP/s", "1.9 GB/s".
std::string flops_text(double per_second);
std::string bytes_text(double per_second);

/// Measures bytes per second of writing a small file, with fsync. Throws Error(environment).
double write_speed(const std::filesystem::path& folder);

/// Returns the file system on which the folder lies: "ext4", "nfs4"; empty: unknown.
std::string file_system_of(const std::filesystem::path& folder, const std::filesystem::path& root = "/");

}  // namespace gputrain::doctor
