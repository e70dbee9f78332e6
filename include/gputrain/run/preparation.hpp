// Steps before the model is built: open the data, check the job against it, choose the micro-batch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gputrain/job/job.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/run/kernel_status.hpp"
#include "gputrain/run/run_request.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct Preparation {
  Job job;  // the given job, with the micro-batch that was chosen
  JobDatasets datasets;
  MicroBatchChoice micro_batch;
  int64_t kept_global_batch = 0;  // that of the resumed run; 0: a new run
  std::string resume = {};        // dry run, on rank 0: the place from which a run would start
};

/// Opens the data, checks the job as far as possible without a model, and chooses the micro-batch if the job leaves it
/// open. Every rank must call; an error on one rank ends all.
Preparation prepare_run(const RunRequest& request, const Job& job, RankContext& context);

/// Throws Error(environment) if the machine, or a container, may not hold what the ranks on it keep for the whole run;
/// nothing of that size is allocated. For a CPU.
void check_memory(const Job& job, const comm::Rendezvous& at, const std::function<JobDatasets()>& open);

/// Makes a dry run: reads one step of data and computes its loss. Writes nothing. Returns the exit code.
int try_out(const Job& job, TrainingSetup& setup, monitor::Console& console, const std::string& resume);

/// Makes one attempt: locks the run folder, resumes, trains, and records how it ended. Returns the exit code. Every
/// rank must call.
int run_attempt(const RunRequest& request, const Job& job, TrainingSetup& setup, monitor::Console& console,
                KernelStatus& kernels);

}  // namespace gputrain::app
