#include "gputrain/run/training.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/samples_file.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/resume/earlier_attempts.hpp"
#include "gputrain/resume/kept_batch.hpp"
#include "gputrain/run/rank_logs.hpp"
#include "gputrain/run/start_page.hpp"
#include "gputrain/setup/model_flops.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/train/sample_hook.hpp"
#include "gputrain/train/trainer.hpp"
#include "gputrain/train/unused_parameter_hook.hpp"
#include "smoke_hook.hpp"

namespace gputrain::app {
namespace {

std::map<std::string, std::string> settings_in_words(const Job& job) {
  std::map<std::string, std::string> words;
  for (const config::Setting& setting : job.loaded.settings()) words[setting.key] = setting.value;
  return words;
}

/// While this object exists, `handler` is called before a process with a stuck main thread is ended.
class ForcedExitHandler {
 public:
  ForcedExitHandler(comm::ProcessGroups& groups, std::function<void(const Error&)> handler) : groups_(groups) {
    groups_.set_forced_exit_handler(std::move(handler));
  }
  ForcedExitHandler(const ForcedExitHandler&) = delete;
  ForcedExitHandler& operator=(const ForcedExitHandler&) = delete;
  ~ForcedExitHandler() { groups_.set_forced_exit_handler(nullptr); }

 private:
  comm::ProcessGroups& groups_;
};

}  // namespace

Training::Training(const RunRequest& request, const Job& job, TrainingSetup& setup, monitor::Console& console,
                   KernelStatus& kernels, const TakenRunFolder& taken)
    : request_(request),
      job_(job),
      spec_(job.spec()),
      setup_(setup),
      console_(console),
      kernels_(kernels),
      folder_(taken.folder),
      lock_(taken.lock),
      text_files_(text_files_of(job, *setup.datasets.train)),
      live_(job, setup, folder_),
      recorder_(setup.context.rank() == 0
                    ? monitor::Recorder(spec_.log.chosen_sinks(),
                                        {folder_.path, console, job.run_id, job.name, settings_in_words(job)})
                    : monitor::Recorder()),
      reporting_{recorder_, setup.plan},
      log_(reporting_, setup.context.groups, setup.context.device),
      ledger_(setup.context.rank() == 0 ? monitor::Ledger(folder_.ledger()) : monitor::Ledger()),
      checkpointing_({job, setup, log_, console, ledger_, pace_, folder_}),
      save_requests_(setup.context.rank() == 0 ? folder_.save_request() : std::filesystem::path()) {
  if (setup.context.rank() == 0) {
    recorder_.add("board", monitor::board_sink(live_.board()));
    recorder_.add("samples", monitor::samples_sink(folder_.samples()));
  }
  if (spec_.eval.sample) samples_.emplace(spec_, setup, text_files_, console, recorder_, folder_);
}

void Training::resume_run() {
  watch_notices();
  std::string resume = this->resume();
  const EarlierAttempts earlier(job_, setup_, folder_);
  progress_.attempts = earlier.number_of_next(progress_);
  if (progress_.attempts > 1) resume += "  attempt " + grouped(progress_.attempts);
  for (const auto& change : checkpointing_.accepted())
    resume += "  accepted " + change.key + " " + change.before + " -> " + change.after;
  const DataIdentity identity = identity_of(setup_);
  earlier.check_data(progress_, identity, request_.accept);
  if (!request_.accept) earlier.refuse_if_stuck(progress_);
  if (!is_finished()) earlier.refuse_if_spent();
  progress_.ordered_rate = earlier.ordered_rate(progress_, checkpointing_.branch());
  truncate_later_history();
  tell_of_kept_batch(setup_.plan.batch);
  pace_ = train::SavePace(earlier.interruptions());
  record_attempt(identity);
  if (setup_.context.rank() == 0) write_text_files(text_files_, folder_.path);
  const auto& mirror = spec_.checkpoint.mirror;
  earlier_seconds_ = earlier.seconds();
  live_.begin(progress_, earlier_seconds_, reporting_);
  const auto spending = cost();
  print_start_page(console_, job_, setup_,
                   {.saves = pace_.text(),
                    .rate = rate_text(),
                    .cost = spending ? spending->text() : "",
                    .resume = resume + (mirror ? "  mirror " + *mirror : "") + notice_text(),
                    .watch = live_.text(),
                    .trackers = recorder_.places()});
}

/// Returns the rate after the schedule's rise if it is not the job's.
std::string Training::rate_text() const {
  std::string text;
  if (progress_.ordered_rate)
    text += monitor::significant(progress_.ordered_rate->lr) + ", set by an order (`gputrain ctl`)";
  if (const double factor = progress_.lr_feedback.factor; factor != 1)
    text +=
        (text.empty() ? "" : ", ") + ("times " + monitor::significant(factor) + " since evaluations brought no gain");
  return text;
}

void Training::record_attempt(const DataIdentity& identity) {
  nlohmann::json attempt = attempt_record(job_, setup_, progress_, identity);
  if (checkpointing_.restore_seconds() > 0) attempt["restore_seconds"] = checkpointing_.restore_seconds();
  if (const auto batch = checkpointing_.batch_elsewhere()) attempt["from_elsewhere"] = {{"global_batch", *batch}};
  attempt["branch"] = checkpointing_.branch();
  for (const auto& change : checkpointing_.accepted()) attempt["accepted"][change.key] = {change.before, change.after};
  if (!checkpointing_.from().empty()) attempt["from"] = checkpointing_.from();
  ledger_.append("attempt", attempt);
}

/// Resumes. If restoring fails, writes a "start_failed" ledger line: the start step is not known yet.
std::string Training::resume() {
  try {
    return checkpointing_.resume(progress_, request_.accept);
  } catch (const std::exception& failure) {
    ledger_.append("start_failed", {{"reason", reason_of(failure)}, {"exit_code", exit_code_of(failure)}});
    throw;
  }
}

/// Moves metrics and log lines about steps that will be repeated into files beside them.
void Training::truncate_later_history() {
  const int rank = setup_.context.rank();
  recorder_.truncate(progress_.step, progress_.evaluated_step);
  const auto left = truncate_logs(folder_, setup_.context, progress_);
  if (progress_.step == 0 && left == 0) return;
  const std::string mark =
      "resumed at step " + grouped(progress_.step) + ", attempt " + std::to_string(progress_.attempts);
  log::info(mark + (left == 0 ? ""
                              : "; " + counted(left, "line") + " about later steps are now in " +
                                    folder_.log(rank).filename().string() + ".left"));
  recorder_.log(
      {.step = progress_.step, .epoch = setup_.plan.epochs_in(progress_.step), .kind = "event", .text = mark});
}

int Training::run() {
  note_reached();
  const ForcedExitHandler on_forced_exit(setup_.context.groups,
                                         [this](const Error& failure) { record_forced_end(failure); });
  const device::FaultExit on_fault([this](const Error& failure) {
    setup_.context.groups.leave(failure);
    record_forced_end(failure);
  });
  try {
    // Only warns: the reported free space may be wrong, and there may be room when the first save is due.
    for (const auto& shortage : disks_too_small(job_, setup_)) log::warning(shortage.error.what());
    monitor::Summary summary = train();
    keep_measured(summary, monitor::newest_end(folder_.summary()));
    setup_.context.groups.control().barrier("end");
    lock_.check();
    if (setup_.context.rank() == 0) monitor::write_summary(folder_.summary(), summary);
    live_.end(summary);
    ledger_.append("end", end_record(summary, progress_));
    train::note_saved();
    setup_.context.groups.leave();  // from here on, a failure of another rank does not matter
    finish_mirror();
    return summary.exit_code;
  } catch (const std::exception& failure) {
    auto known = out_of_memory_error(failure, job_, &setup_, present_work());
    if (!known) known = device::fault_of(failure, setup_.context.device);
    setup_.context.groups.leave(known ? *known : failure);
    record_end(known ? *known : failure);
    if (known) throw Error(*known);
    throw;
  }
}

/// Returns the present activity in words, for error messages.
std::string Training::present_work() const {
  const int64_t step = progress_.step;
  const bool is_done = step >= setup_.plan.total_steps;
  const bool is_evaluating =
      setup_.datasets.val && progress_.evaluated_step != step && (is_done || setup_.plan.eval.at_step(step));
  if (is_evaluating && step > 0) return "in the evaluation after step " + grouped(step);
  return is_done ? "at the end, after step " + grouped(step) : "in step " + grouped(step + 1);
}

monitor::Summary Training::summary_now() const {
  monitor::Summary summary = summarize(job_, setup_.context, setup_.plan, progress_, log_);
  summary.total_seconds = earlier_seconds_ + summary.wall_seconds;
  if (const auto known = cost()) {
    summary.cost = known->sum;
    summary.cost_limit = known->most;
  }
  return summary;
}

void Training::record_end(const std::exception& failure) {
  if (setup_.context.rank() != 0 || !lock_.is_held()) return;  // do not write into the folder of another run
  const std::lock_guard lock(end_mutex_);
  const auto summary = record_failure(summary_now(), failure, folder_);
  ledger_.append("end", end_record(summary, progress_));
  live_.end(summary);
}

/// Keeps a copy of the progress after each step: a main thread that is stuck, or that a GPU's failure has ended, cannot
/// be asked for it.
void Training::note_reached() {
  const bool ends_by_itself = setup_.context.groups.alone() && setup_.context.device.is_cpu();
  if (setup_.context.rank() != 0 || ends_by_itself) return;
  Reached now{summary_now(), progress_};
  const std::lock_guard lock(end_mutex_);
  reached_ = std::move(now);
}

void Training::record_forced_end(const Error& failure) {
  if (setup_.context.rank() != 0 || !lock_.is_held()) return;
  const std::lock_guard lock(end_mutex_);
  const auto summary = record_failure(reached_.summary, failure, folder_);
  monitor::Ledger(folder_.ledger())
      .append("end", end_record(summary, reached_.progress));  // ledger_ belongs to the main thread
}

monitor::Summary Training::train() {
  train::note_signals();
  first_step_ = progress_.step;
  auto& [context, datasets, plan, built, optimizer_stack, gradient_sync, micro_batch] = setup_;
  const train::StopReason own_stop = [this] { return this->own_stop(); };
  TrainingLoop loop(spec_, setup_, own_stop, [this] { checkpointing_.finish_copy(); });
  loop.set_clock(&live_.clock());

  std::optional<train::EvalHook> eval;
  if (datasets.val) eval.emplace(eval_parts(loop));
  train::ReplicaHook replicas(replica_parts());
  const auto save_now = [&](const auto& progress, auto mode) {
    replicas.check(progress);
    lock_.check();
    checkpointing_.save(progress, mode);
  };
  train::SaveHook save(save_parts(save_now));
  train::NonFiniteGuard nonfinite_guard(guard_parts([&] { return save.is_due() || (eval && eval->is_due()); }));
  train::UnusedParameterHook unused(*built.model);
  train::MeterHook meter({.clock = live_.clock(),
                          .groups = context.groups,
                          .reporting = reporting_,
                          .board = live_.board(),
                          .places = live_.places(),
                          .readings = [this] { return live_.readings(); }});
  train::ProfileHook profile(profile_parts());
  train::ControlHook control(control_parts(profile));
  log_.set_more_metrics([this, &meter] { return more_metrics(meter); });
  if (spec_.limits.price_per_hour) log_.set_cost([this] { return cost()->so_far(); });
  log_.set_model_flops(model_flops(spec_, setup_));
  std::vector<train::Hook*> hooks{&profile, &kernels_, &unused, &nonfinite_guard, &meter, &log_, &replicas, &control};
  train::SampleHook sample({reporting_, context.groups,
                            [&] { loop.run_with_average([&] { samples_->write(progress_); }); }, built.has_parts()});
  if (!plan.sample.is_never()) hooks.push_back(&sample);
  if (eval) hooks.push_back(&*eval);
  hooks.push_back(&save);
  SmokeHook smoke({.spec = spec_,
                   .setup = setup_,
                   .loop = loop,
                   .console = console_,
                   .own_stop = own_stop,
                   .save = [&](const auto& progress) { save_now(progress, train::SaveMode::durable); }});
  if (request_.smoke) hooks.push_back(&smoke);

  if (!checkpointing_.is_in_place()) checkpointing_.save(progress_, train::SaveMode::durable);
  const train::Outcome outcome = train_to_end(loop, hooks, nonfinite_guard);
  loop.end_with_average();
  return close(outcome);
}

/// Trains to the end or to a stop, and goes on after each rollback.
train::Outcome Training::train_to_end(TrainingLoop& loop, const std::vector<train::Hook*>& hooks,
                                      const train::NonFiniteGuard& nonfinite_guard) {
  try {
    while (true) {
      const train::Outcome outcome = loop.run(progress_, hooks);
      if (outcome.stop != train::Stop::diverged) return outcome;
      roll_back(nonfinite_guard.finding());
    }
  } catch (const Error& failure) {
    // All ranks get here at the same step. Wait, because a rank that left early would abort a collective of another
    // rank.
    if (failure.code() == ExitCode::refused) setup_.context.groups.control().barrier("results refused");
    throw;
  }
}

/// Tests the trained model, checks the results against `expect`, and writes the weights.
monitor::Summary Training::close(train::Outcome outcome) {
  auto& built = setup_.built;
  auto& context = setup_.context;
  if (setup_.datasets.test && !outcome.is_preempted()) outcome.stop = std::max(outcome.stop, test());
  stop_ = outcome.stop;
  const Expectation expectation = check_expectation(spec_, progress_.metrics);
  live_.note_times(progress_);
  monitor::Summary summary = summary_now();
  if (progress_.step > first_step_ && !context.groups.alone()) {
    const auto traffic = traffic_of_step(setup_);
    summary.sent_bytes_per_step = traffic.bytes;
    summary.uncompressed_bytes_per_step = traffic.full_bytes;
  }
  conclude(summary, outcome, expectation, request_.verify);
  context.groups.enter("at the end, after step", progress_.step);
  lock_.check();
  checkpoint::NamedTensors adapter;
  const Activity activity("save", "weights");
  if (built.adapter) {
    adapter = gathered_weights(built, context, parallel::Values::trained);
  } else {
    write_weights(built, context.rank(), *setup_.datasets.train, folder_);
  }
  if (context.rank() == 0) {
    finish(summary, expectation, adapter);
  } else if (built.has_parts()) {
    if (samples_at_end(summary)) samples_->write(progress_);
    write_merged();
  }
  return summary;
}

train::Stop Training::test() {
  if (progress_.step == first_step_) {
    const auto known =
        tested_before(monitor::newest_end(folder_.summary()), job_.run_id, progress_.step, setup_.context.groups);
    for (const auto& [name, value] : known) progress_.metrics[name] = value;
    if (!known.empty()) return train::Stop::none;
  }
  is_testing_ = true;
  const auto evaluator = make_evaluator(spec_, setup_.datasets.test, setup_, "test");
  train::StopPoll poll(setup_.context.groups, [this] { return own_stop(); });
  const auto metrics = evaluator.run(*setup_.built.model, setup_.context.groups, poll);
  if (const train::Stop stop = poll.finish(); stop != train::Stop::none) return stop;
  for (const auto& [name, value] : metrics) progress_.metrics[name] = value;
  const auto columns = train::metric_columns(metrics, "test/", "test/" + main_metric_of(spec_, *setup_.datasets.task));
  recorder_.log({.step = progress_.step,
                 .epoch = setup_.plan.epochs_in(progress_.step),
                 .kind = "eval",
                 .metrics = metrics,
                 .label = "test",
                 .text = monitor::joined(columns),
                 .columns = columns});
  return train::Stop::none;
}

bool Training::samples_at_end(const monitor::Summary& summary) const { return samples_ && summary.status != "stopped"; }

/// Writes merged weights on rank 0; every rank must call if no rank has all weights.
void Training::write_merged() {
  const models::Adapter* adapter = setup_.built.adapter.get();
  if (adapter == nullptr || !adapter->is_written_merged()) return;
  const checkpoint::NamedTensors weights = merged_weights(setup_.built, setup_.context);
  if (setup_.context.rank() == 0) write_weights(*setup_.built.model, weights, *setup_.datasets.train, folder_);
}

/// Ends an attempt on rank 0, which has already written the weights of a model without adapter. `adapter_weights`:
/// those of a model with one.
void Training::finish(const monitor::Summary& summary, const Expectation& expectation,
                      const checkpoint::NamedTensors& adapter_weights) {
  auto& model = *setup_.built.model;
  const models::Adapter* adapter = setup_.built.adapter.get();
  if (adapter != nullptr) {
    write_adapter(model,
                  {.adapter = *adapter,
                   .weights = adapter_weights,
                   .base = *spec_.model.pretrained,
                   .learned = *setup_.datasets.train},
                  folder_.adapter());
    write_text_files(text_files_, folder_.adapter());
  }
  if (samples_at_end(summary)) samples_->write(progress_);
  write_merged();  // last: it changes the model
  tell_end(summary, expectation);
}

/// Returns what to change for a job that has ended to train on.
std::string Training::what_lasts_longer() const {
  if (stop_ == train::Stop::early_stop) return "raise eval.early_stopping.patience";
  if (stop_ == train::Stop::max_time) return "raise train.max_time";
  return "raise " + setup_.plan.limit + " and add --accept";
}

}  // namespace gputrain::app
