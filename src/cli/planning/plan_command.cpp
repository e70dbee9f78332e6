// Command `gputrain plan`: finds the settings of a job that train fastest on GPUs that nobody has rented yet.
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "device_memory.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/plan_rates.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "plan_page.hpp"

namespace gputrain::app {
namespace {

[[noreturn]] void refuse_what_does_not_fit(const PlanRequest& request, const Plans& plans) {
  const PlanRow& nearest = plans.smallest();
  const PlanCandidate& candidate = nearest.candidate;
  const std::string mesh = mesh_text(candidate);
  const double needed = static_cast<double>(nearest.bytes()) / (1 - kKeptMemory);
  const std::string memory = fmt::format("--device-memory {:.0f}GiB", std::ceil(needed / 0x1p30));
  const std::string ranks = plans.ranks_that_would_fit > 0
                                ? fmt::format(", or --world-size {}", plans.ranks_that_would_fit)
                                : std::string("; more ranks do not help, as activations of one sample are too many");
  throw Error(
      ExitCode::environment,
      {.what = fmt::format("nothing fits into {}: the nearest, shard {}{} with a micro-batch of {} and activation "
                           "checkpointing {}, needs {} ({} of activations), and {:.0f} % for other things",
                           monitor::bytes(request.device_bytes), candidate.shard, mesh.empty() ? "" : ", " + mesh + ",",
                           grouped(candidate.micro_batch), candidate.checkpointing, monitor::bytes(nearest.bytes()),
                           monitor::bytes(nearest.most_memory().activations), 100 * kKeptMemory),
       .hint = memory + ranks});
}

}  // namespace

int plan_command(const PlanCommand& command) {
  const Job job = load_job(command.job);
  take_harmless_environment(job.spec().env);
  PlanRequest request{.world_size = command.world_size,
                      .device_bytes = device_bytes(command.device_memory, job.spec()),
                      .rates = plan_rates(command.rates, job.spec())};
  if (request.device_bytes == 0) {
    throw Error(ExitCode::usage, {.what = "how much memory each GPU has is not known: there is none here",
                                  .hint = "--device-memory 80GiB"});
  }
  const Plans plans = search_plans(job, request);
  if (command.json) {
    std::printf("%s\n", plan_json(request, plans).dump(2).c_str());
  } else {
    std::printf("%s", plan_head(job, request, plans).c_str());
  }
  if (plans.fitting.empty()) refuse_what_does_not_fit(request, plans);
  if (!command.json) std::printf("%s", plan_table(plans).c_str());
  return 0;
}

}  // namespace gputrain::app
