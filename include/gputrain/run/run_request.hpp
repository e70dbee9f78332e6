// Options of `gputrain run`.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/job/job_request.hpp"

namespace gputrain::app {

/// Options of `run --dry-run --world-size`, which checks a job for ranks that do not exist.
struct DryRunRequest {
  int world_size = 0;         // 0: not given
  int ranks_here = 0;         // ranks of this machine, if these are its own; 0: they do not exist
  std::string device_memory;  // "80GiB"; empty: not given
  bool json = false;
};

struct RunRequest {
  JobRequest job;
  bool dry_run = false;
  DryRunRequest dry_run_request;
  bool accept = false;           // resume even if settings that affect results changed
  bool is_new = false;           // --new, which sets checkpoint.resume: never; the launcher's later attempts go on
  bool verify = false;           // exit with 4 if a metric misses its `expect:` band
  int64_t profile = 0;           // steps to record; 0: none
  bool smoke = false;            // evaluate some samples and save after the first steps
  bool silent_if_wrong = false;  // the launcher reports errors in the job
};

}  // namespace gputrain::app
