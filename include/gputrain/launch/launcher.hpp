// Starts the ranks of a job on one or many hosts, watches them, and restarts them when that can help.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/launch/hosts.hpp"
#include "gputrain/launch/nodes.hpp"

namespace gputrain::launch {

/// The progress of a run, read from its folder.
struct RunState {
  std::optional<int64_t> step;             // last reported step
  std::optional<int64_t> checkpoint_step;  // of the newest good checkpoint
  std::string checkpoint;                  // its path
  std::string stopped_by;                  // from summary.json, if the newest attempt was stopped
  std::string again = "the same command";  // how to go on, in words
};

struct LaunchRequest {
  HostPlan plan;
  std::optional<NodeContext> node;                    // if a scheduler runs this on each node; plan.hosts is this node
  std::function<std::vector<std::string>()> command;  // arguments of every rank: "run", "job.yaml", ...
  std::map<std::string, std::string> environment;     // of every rank, set before its libraries are loaded
  std::filesystem::path run_folder;                   // gets logs/start_K/; empty: no logs are written
  std::string device;                                 // of the job: auto, cpu, cuda
  std::string version;                                // hosts with another version are refused
  bool measures = false;                              // there is no run to go on with, and stdout is the result
  int64_t max_restarts = 3;
  uint16_t master_port = 0;  // 0: a free port
  double grace_seconds = 300, host_timeout_seconds = 300;
  std::function<RunState()> state;  // for reports, and to decide what follows when ranks made way
  /// Checks the job and prints what is wrong with it, for ranks that end with exit code 2 without a message. Returns
  /// the exit code, 0 for a valid job. Empty: the job was checked before.
  std::function<int()> check_job;
};

/// Runs the job to its end and returns the exit code; prints a final failure on one page. On every node but the first,
/// the launcher of node 0 gives the orders and the exit code. Throws Error(environment) when a host cannot be reached
/// at the start.
int launch(const LaunchRequest& request);

}  // namespace gputrain::launch
