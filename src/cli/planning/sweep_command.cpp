#include "../commands.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/sweep/sweep.hpp"

namespace gputrain::app {

int sweep_command(const SweepRequest& request) {
  const Job job = load_job(request.job);
  job.loaded.require_secrets();
  return run_sweep(request.job, job, request.json);
}

}  // namespace gputrain::app
