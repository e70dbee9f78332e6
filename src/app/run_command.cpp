// `gputrain run`: the way a job takes, from the file to the trained model.
#include <filesystem>
#include <utility>

#include "assembly.hpp"
#include "checkpointing.hpp"
#include "commands.hpp"
#include "ending.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/train/sampler.hpp"
#include "run_folder.hpp"
#include "start_page.hpp"
#include "weights.hpp"

namespace gputrain::app {
namespace {

/// Finds out before training what would fail after it: a prompt that the vocabulary cannot spell.
void check_sample(const Job& job, const Datasets& datasets) {
  const auto& sample = job.spec().eval.sample;
  if (!sample) return;
  if (!datasets.train->encoder()) {
    throw job.loaded.error("eval.sample", "the training data has no vocabulary to write text with",
                           "leave eval.sample out, or train on format: text");
  }
  if (datasets.train->encoder()(sample->prompt).empty()) {
    throw job.loaded.error("eval.sample.prompt", "the prompt is empty", "give it at least one character");
  }
}

void print_sample(const Job& job, const Datasets& datasets, models::Model& model, monitor::Console& console) {
  const auto& sample = job.spec().eval.sample;
  if (!sample) return;
  console.line("sample", "temperature " + monitor::significant(sample->temperature));
  console.block(train::write_sample(model, *datasets.train, datasets.tokens_per_sample(), *sample,
                                    static_cast<uint64_t>(job.spec().seed)));
}

/// Everything short of training: reads one step of data and computes its loss, writes nothing.
int dry_run(const Job& job, Place& place, const Datasets& datasets, const train::Plan& plan, BuiltModel& built,
            monitor::Console& console) {
  data::Loader loader(datasets.train, loader_options(job.spec(), *datasets.train, place, plan.batch));
  const auto step = loader.next_step();
  const at::Tensor loss = built.model->loss(loader.to_device(step.micro_batches.front()), job.spec().train.label_smoothing);
  const double mean = loss.item<double>() / static_cast<double>(step.micro_batches.front().weight);
  console.line("dry run", "all checks passed; first loss " + monitor::significant(mean) + "; nothing was written");
  return 0;
}

/// The folder is rank 0's to make; the others use it once it is there.
RunFolder enter_run_folder(const Job& job, Place& place) {
  const bool fresh = job.spec().checkpoint.resume == "never";
  RunFolder folder{job.output_dir};
  if (place.rank() == 0) folder = open_run_folder(job.output_dir, fresh);
  place.groups.control().barrier("run folder");
  log::open_file(folder.log(place.rank()));
  if (place.rank() == 0) {
    write_file_atomically(folder.resolved(), job.loaded.resolved_yaml(), ExitCode::environment);
  }
  return folder;
}

}  // namespace

int run_command(const RunRequest& request) {
  const Job job = load_job(request.job);
  const JobSpec& spec = job.spec();
  train::watch_signals();
  Place place = take_place(spec);
  monitor::Console console(monitor::Console::detect(place.rank() == 0));
  const Datasets datasets = open_datasets(job);
  check_sample(job, datasets);
  const train::Plan plan = plan_run(spec, datasets, place);
  BuiltModel built = build_model(job, datasets, place);
  Updates updates = build_updates(job, place, plan, built);
  if (request.dry_run) {
    print_start_page(console, {job, place, datasets, built, plan, updates, "not looked for (dry run)"});
    return dry_run(job, place, datasets, plan, built, console);
  }

  const RunFolder folder = enter_run_folder(job, place);
  train::Progress progress;
  monitor::MetricsFile metrics;
  const train::Reporting reporting{console, metrics, plan};
  train::FiniteHook finite(spec.train.nonfinite == "stop", place.device.is_cpu() ? 1 : plan.log.steps, updates.scaler.get());
  train::LogHook log(reporting, place.groups, place.device);
  Checkpointing checkpointing({job, place, built, updates, log, folder});
  const std::string resume = checkpointing.resume(progress, request.accept);
  if (place.rank() == 0) metrics = monitor::MetricsFile(folder.metrics(), progress.step);
  print_start_page(console, {job, place, datasets, built, plan, updates, resume});

  data::LoaderOptions reading = loader_options(spec, *datasets.train, place, plan.batch);
  if (!plan.is_time_limited()) reading.total_steps = plan.total_steps;
  data::Loader loader(datasets.train, reading, {.step = progress.step});
  parallel::DataParallel data_parallel(place.groups, *built.arena, built.parameters, bucket_limits(spec));
  train::Step step({*built.model, *built.arena, loader, data_parallel, *updates.optimizer, updates.scaler.get()},
                   {.label_smoothing = spec.train.label_smoothing, .max_grad_norm = spec.train.max_grad_norm});
  train::Feed feed(loader, place.groups);

  std::vector<train::Hook*> hooks{&finite, &log};
  std::optional<train::EvalHook> eval;
  if (datasets.val) {
    eval.emplace(train::EvalHook::Parts{make_evaluator(spec, datasets.val, datasets, place, plan.batch, "val"), *built.model,
                                        place.groups, reporting, spec.eval.at_start});
    hooks.push_back(&*eval);
  }
  train::SaveHook save(plan.save, [&](const train::Progress& at) { checkpointing.save(at); });
  hooks.push_back(&save);

  monitor::Summary summary;
  try {
    train::Trainer trainer({step, feed, plan, [&](int64_t at) { return updates.schedule->lr(at); }}, hooks);
    const train::Outcome outcome = trainer.run(progress);
    const Expectation expectation = check_expectation(spec, progress.metrics);
    summary = summarize(job, place, plan, progress, log);
    conclude(summary, outcome, expectation, request.verify);
    if (place.rank() == 0) {
      write_weights(*built.model, folder);
      if (summary.status == "done") print_sample(job, datasets, *built.model, console);
      print_ending(console, summary, plan, expectation, folder);
    }
    place.groups.control().barrier("end");
  } catch (const std::exception& failure) {
    if (place.rank() == 0) record_failure(summarize(job, place, plan, progress, log), failure, folder);
    throw;
  }
  if (place.rank() == 0) monitor::write_summary(folder.summary(), summary);
  return summary.exit_code;
}

}  // namespace gputrain::app
