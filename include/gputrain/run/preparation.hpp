// What a run finds out before its model is built: data, checks of the job against it, the micro-batch.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/job/commands.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

struct Preparation {
  Job job;  // as given, with the micro-batch that was found
  Datasets datasets;
  MicroBatchChoice micro_batch;
  int64_t kept_global_batch = 0;  // of the run that goes on; 0: a new one
  std::string resume = {};        // where a run would start from; rank 0's, in a dry run
};

/// Opens the data, checks what can be checked without a model, and finds the micro-batch if the job leaves it open.
/// Every rank must call; an error on one rank ends all.
Preparation prepare_run(const RunRequest& request, const Job& job, Place& place);

/// A dry run: reads one step of data and computes its loss. Writes nothing. Returns the exit code.
int try_out(const Job& job, Assembly& assembly, monitor::Console& console, const std::string& resume);

/// One attempt: takes the run folder, resumes, trains, and records how it ended. Returns the exit code. Every rank must
/// call.
int run_attempt(const RunRequest& request, const Job& job, Assembly& assembly, monitor::Console& console);

}  // namespace gputrain::app
