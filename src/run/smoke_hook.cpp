#include "smoke_hook.hpp"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {

train::Stop SmokeHook::after_step(train::Progress& progress, const train::StepResult&, bool) {
  if (++steps_ != kSteps) return train::Stop::none;
  const train::Stopwatch watch;
  auto& [context, datasets, plan, built, optimizer_stack, gradient_sync, micro_batch] = parts_.setup;
  context.groups.enter("in the smoke test after step", progress.step);
  for (const auto& [role, dataset] : {std::pair("val", datasets.val), {"test", datasets.test}}) {
    if (!dataset) continue;
    if (const train::Stop stop = evaluate(dataset, role); stop != train::Stop::none) return stop;
  }
  progress.eval_seconds += watch.seconds();
  const train::Stopwatch save_watch;
  parts_.save(progress);
  progress.save_seconds += save_watch.seconds();
  const std::string evaluated = datasets.val || datasets.test ? "an evaluation and a save" : "a save";
  parts_.console.line("smoke", counted(kSteps, "step") + ", " + evaluated + " went well; training goes on  " +
                                   monitor::duration(watch.seconds()));
  return train::Stop::none;
}

/// Evaluates two batches as an evaluation of the run would.
train::Stop SmokeHook::evaluate(const std::shared_ptr<const data::Dataset>& dataset, const std::string& role) {
  auto& setup = parts_.setup;
  const int64_t batch = parts_.spec.eval.batch_size.value_or(setup.plan.batch.micro_batch);
  const int64_t samples = 2 * batch * setup.context.groups.mesh().samples();
  JobSpec spec = parts_.spec;
  if (spec.data.max_bad_fraction > 0) spec.data.max_bad_fraction = 1;  // it is a share of all samples
  const auto evaluator = make_evaluator(spec, dataset, setup, role, std::min<int64_t>(samples, dataset->size()));
  train::StopPoll poll(setup.context.groups, parts_.own_stop);
  tasks::Totals totals;
  parts_.loop.run_with_average([&] { totals = evaluator.totals(*setup.built.model, setup.context.groups, poll); });
  if (const train::Stop stop = poll.finish(); stop != train::Stop::none) return stop;
  evaluator.metrics_of(totals);
  if (setup.context.rank() == 0) evaluator.details_of(totals);
  return train::Stop::none;
}

}  // namespace gputrain::app
