// Starts the ranks of a job on one host or many, watches them, and restarts them where that makes sense.
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

/// How far a run has come, as its folder tells.
struct RunState {
  std::optional<int64_t> step;             // the last one reported
  std::optional<int64_t> checkpoint_step;  // of the newest good checkpoint
  std::string checkpoint;                  // its path
  std::string stopped_by;                  // of summary.json, where the newest attempt was stopped
  std::string again = "the same command";  // what goes on, in words
};

struct LaunchRequest {
  HostPlan plan;
  std::optional<NodePlace> node;  // of a scheduler that runs this on each node; the plan's hosts are they
  std::function<std::vector<std::string>()> command;  // of every rank, after the program: "run", "job.yaml", ...
  std::map<std::string, std::string> environment;     // for every rank, before its libraries are loaded
  std::filesystem::path run_folder;                   // logs/attempt_K/ goes there
  std::string device;                                 // the job's: auto, cpu, cuda
  std::string version;                                // hosts with another one are refused
  int64_t max_restarts = 3;
  uint16_t master_port = 0;  // 0: a free one
  double grace_seconds = 300, host_timeout_seconds = 300;
  std::function<RunState()> state;  // for reports, and for what to do about ranks that have made way
  /// Checks the job and says what is wrong with it, for ranks that end with exit code 2 without a word; returns the
  /// exit code, 0 for a job that is right. Empty: that has been done.
  std::function<int()> check_job;
};

/// Runs the job to its end and returns the exit code; what went wrong for good has been told on one page. On a node but
/// the first it is node 0's launcher that says what is to be done, and what this one ends with.
/// Throws Error(environment) when a host cannot be reached at the start.
int launch(const LaunchRequest& request);

}  // namespace gputrain::launch
