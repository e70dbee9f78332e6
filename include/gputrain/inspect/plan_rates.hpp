// Constants of `gputrain plan`: measured if there are files, else published, else assumed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::app {

struct ClusterRates;
struct JobSpec;

struct RateSources {
  std::string gpus;  // "h100"; empty: those of the measured file or here, else h100
  int64_t gpus_per_host = 8;
  std::string bench_train;              // what `bench train --json` printed; empty: none
  std::vector<std::string> bench_comm;  // what `bench comm --json` printed, inside a host, between hosts
};

/// Finds the rates; that of compute is 0 where the GPUs have no known one in the job's precision. Throws Error(usage)
/// for unknown GPUs and files of other commands.
ClusterRates plan_rates(const RateSources& sources, const JobSpec& spec);

}  // namespace gputrain::app
