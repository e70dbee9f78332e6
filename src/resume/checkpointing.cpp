#include "gputrain/resume/checkpointing.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/resume/record.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::app {
namespace {

constexpr double kWaitedSecondsToTell = 1, kWaitedShareToTell = 0.05;

}  // namespace

std::string main_metric_of(const JobSpec& spec, const tasks::Task& task) {
  return spec.checkpoint.metric.value.value_or(task.best_metric().name);
}

std::string watched_metric_of(const JobSpec& spec, const JobDatasets& datasets) {
  if (!datasets.val) return "";
  const tasks::Task& task = *datasets.task;
  const std::string name = main_metric_of(spec, task);
  if (task.find(name) == nullptr) {
    std::string measured;
    for (const auto& metric : task.metrics()) measured += (measured.empty() ? "" : ", ") + metric.name;
    throw Error(ExitCode::usage,
                {.what = "checkpoint.metric: " + name + " is not measured on this data", .hint = measured});
  }
  return "val/" + name;
}

std::string best_metric_of(const JobSpec& spec, const JobDatasets& datasets) {
  return spec.checkpoint.keep_best == 0 ? "" : watched_metric_of(spec, datasets);
}

checkpoint::Retention retention_of(const train::CheckpointSpec& spec, const train::Plan& plan,
                                   const std::string& metric) {
  return {.keep_last = spec.keep_last,
          .keep_best = metric.empty() ? 0 : spec.keep_best,
          .keep_every = plan.save.also_steps,
          .by_mark = plan.save.also_steps > 0,
          .smaller_is_better = tasks::smaller_is_better(metric)};
}

Checkpointing::Checkpointing(Parts parts)
    : parts_(std::move(parts)),
      state_(parts_.job, parts_.setup, parts_.log),
      best_metric_(best_metric_of(parts_.job.spec(), parts_.setup.datasets)),
      point_(agreed_resume_point(parts_.job, parts_.setup.context.groups)),
      store_(parts_.folder.checkpoints(), retention_of(parts_.job.spec().checkpoint, parts_.setup.plan, best_metric_),
             point_.branch),
      writer_(store_) {
  const auto& spec = parts_.job.spec().checkpoint;
  if (spec.mirror) {
    mirror_.emplace(RunMirror::Parts{.folder = *spec.mirror,
                                     .retention = retention_of(spec, parts_.setup.plan, best_metric_),
                                     .branch = point_.branch,
                                     .writes = is_rank_zero(),
                                     .ledger = parts_.ledger,
                                     .console = parts_.console});
  }
}

std::string Checkpointing::resume(train::Progress& progress, bool accept_changes) {
  bool forgets = false;
  if (parts_.setup.built.sharded && may_resume()) state_.note_given();
  const auto chosen = choose([&](const checkpoint::Checkpoint& from) {
    const train::Stopwatch watch;
    const Activity activity("resume", from.folder().string());
    state_.take_up(from, progress, accept_changes);
    forgets = forget_other_evaluations(from, progress);
    restore_seconds_ = watch.seconds();
  });
  if (!chosen) {
    start_adapter(parts_.setup.built, parts_.setup.context);
    progress.attempts = 0;
    if (parts_.job.spec().checkpoint.resume == "never") return "off (--new, or checkpoint.resume: never)";
    return "none found in " + parts_.folder.checkpoints().string() + "  saves go there";
  }
  if (accept_changes) accepted_ = changes_to_accept(chosen->state().at("settings"), parts_.job);
  tell_other_versions(*chosen);
  if (forgets && is_rank_zero()) tell_of_other_evaluations();
  const bool is_given = !point_.path.empty();
  const bool is_from_mirror = !is_given && chosen->folder().parent_path() != store_.folder();
  // Hosts that do not share the run folder read the mirror's copy of what rank 0 reads there.
  is_in_place_ = parts_.setup.context.groups.from_rank_zero(static_cast<int64_t>(!is_given && !is_from_mirror),
                                                            "whether the run goes on in its folder") != 0;
  std::error_code unknown;
  if (is_given) from_ = std::filesystem::weakly_canonical(chosen->folder(), unknown).string();
  const auto& mirror = parts_.job.spec().checkpoint.mirror;
  const bool is_own =
      is_within(chosen->folder(), parts_.folder.path) || (mirror && is_within(chosen->folder(), *mirror));
  if (!is_own) batch_elsewhere_ = chosen->state().value("global_batch", parts_.setup.plan.batch.global_batch);
  if (mirror_ && is_in_place_) mirror_->begin(chosen->folder());  // else what is saved first
  return "step " + grouped(progress.step) + " from " + chosen->folder().string() + " in " +
         monitor::duration(restore_seconds_) + (is_from_mirror ? "  (the mirror's: newer than any good one here)" : "");
}

/// Returns whether what was evaluated before belongs to another data.val than today's, if there is one, and is
/// forgotten.
bool Checkpointing::forget_other_evaluations(const checkpoint::Checkpoint& from, train::Progress& progress) const {
  if (progress.evaluated_step < 0) return false;
  const bool has_other_data = parts_.setup.datasets.val && state_.has_other_validation_data(from);
  if (!has_other_data && !evaluates_otherwise(from.state().at("settings"), parts_.job.loaded.settings())) return false;
  progress.forget_evaluations();
  return true;
}

void Checkpointing::tell_of_other_evaluations() const {
  log::warning(std::string(parts_.setup.datasets.val ? "data.val is evaluated on other data than before"
                                                     : "there is no data.val any more") +
               ": earlier values no longer count as results or as the best; checkpoint.keep_best still goes by the "
               "scores of older checkpoints");
}

/// Returns whether the run may resume. Every rank must call.
bool Checkpointing::may_resume() const {
  if (parts_.job.spec().checkpoint.resume == "never") return false;
  const bool finds = is_rank_zero() && (!point_.path.empty() || !checkpoint::finished_in(point_.folders).empty());
  return parts_.setup.context.groups.from_rank_zero(static_cast<int64_t>(finds), "whether there are checkpoints") != 0;
}

std::optional<checkpoint::Checkpoint> Checkpointing::choose(const Read& read) {
  if (parts_.job.spec().checkpoint.resume == "never") return std::nullopt;
  if (!point_.path.empty()) return read_given(point_.path, parts_.setup.context.groups, read);
  auto found = newest(read);
  if (!found) refuse_if_must(parts_.job);
  return found;
}

std::optional<checkpoint::Checkpoint> Checkpointing::newest(const Read& read) {
  const auto copy = [&](const std::filesystem::path& checkpoint) {
    // Time shorter than that of the other ranks, which wait for rank 0 in a collective.
    return mirror_ ? mirror_->copy_now(checkpoint, parts_.job.spec().parallel.timeout.seconds / 2) : CopyResult::failed;
  };
  return newest_good(parts_.job, parts_.setup.context.groups, point_, read, copy);
}

int64_t Checkpointing::roll_back(train::Progress& progress, const std::string& reason) {
  settle();  // nothing copies what is put back
  const train::Progress now = progress;
  const Read put_back = [&](const checkpoint::Checkpoint& from) {
    // One that could not be read when this attempt began.
    if (from.step() > now.step) throw checkpoint::Unreadable("is newer than what goes back to it", from.folder());
    state_.restore(from, progress);
    forget_other_evaluations(from, progress);
  };
  const auto found = newest(put_back);
  if (!found) {
    throw Error(ExitCode::refused,
                {.what = "training diverged: " + reason + "; there is no checkpoint yet to go back to",
                 .where = parts_.folder.checkpoints().string(),
                 .hint = "a shorter checkpoint.interval, a longer warm-up, or train.nonfinite: skip"});
  }
  parts_.log.pass_over(progress, now);
  const int64_t back_to = progress.step;
  progress.step = now.step;
  if (now.evaluated_step < now.step) progress.evaluated_step = now.evaluated_step;  // its lines stay
  progress.ordered_rate = now.ordered_rate;
  progress.unreadable_in_epoch = now.unreadable_in_epoch;
  progress.train_seconds = now.train_seconds;
  progress.attempts = now.attempts;
  progress.nonfinite_steps = now.nonfinite_steps;
  progress.rollbacks = now.rollbacks + 1;
  return back_to;
}

/// Warns of other versions of libraries: another one may round otherwise, and who compares runs bit for bit must know.
void Checkpointing::tell_other_versions(const checkpoint::Checkpoint& from) const {
  if (!is_rank_zero()) return;
  auto today = versions(parts_.setup.context.device);
  std::string changed;
  for (const auto& [name, before] : from.manifest().origin.versions) {
    const std::string& now = today[name];
    if (now == before) continue;
    changed += (changed.empty() ? "" : ", ") + name + " " + before + " -> " + (now.empty() ? "none" : now);
  }
  if (changed.empty()) return;
  log::warning("the checkpoint was written with other versions (" + changed +
               "): results may differ in their last bits");
}

void Checkpointing::save(const train::Progress& progress, train::SaveMode mode) {
  const bool durable = mode == train::SaveMode::durable;
  const Activity activity("save", "checkpoint of step " + grouped(progress.step));
  auto& groups = parts_.setup.context.groups;
  groups.enter("in the save after step", progress.step);
  checkpoint::Snapshot live = state_.gather(progress, best_metric_);
  live.synced_before = {parts_.folder.metrics()};
  // gather() has waited for the device. If NCCL has aborted sums, updates were made of incomplete ones.
  if (!parts_.setup.context.device.is_cpu())
    groups.tensors().check("step " + std::to_string(progress.step), std::chrono::steady_clock::now());
  if (writes()) {
    const double waited_seconds = wait_for_the_save_before();
    if (mode == train::SaveMode::background) tell_of_waiting(waited_seconds);
    begun_[progress.step] = {.usage = progress.usage, .waited_seconds = waited_seconds};
    if (!state_.is_shared_out() || prepare(live)) write(live, mode);
  }
  if (fails_anywhere(durable ? failures_ > 0 : failures_ >= parts_.job.spec().checkpoint.max_save_failures)) {
    throw Error(
        ExitCode::checkpoint,
        {.what = "cannot save: " + (last_failure_.empty() ? "another rank has the reason" : last_failure_),
         .hint =
             "free disk space or memory, or repair the disk, then start again: training continues from the last good "
             "checkpoint"});
  }
}

/// Makes room, on rank 0, for the files of all ranks. Returns false if there is none. Every rank that writes must call.
bool Checkpointing::prepare(const checkpoint::Snapshot& live) {
  bool failed = false;
  try {
    if (live.rank == 0) store_.prepare(live);
  } catch (const Error& failure) {
    failed = true;
    note(checkpoint::BackgroundWriter::Result{.step = live.step, .failure = failure});
  }
  return !fails_anywhere(failed);
}

void Checkpointing::write(const checkpoint::Snapshot& live, train::SaveMode mode) {
  if (mode == train::SaveMode::durable) {
    if (mirror_) mirror_->hold(true);  // the save in the run folder comes first
    note(writer_.save(live));
    if (mirror_) mirror_->hold(false);
    return;
  }
  if (mode == train::SaveMode::announced && live.rank == 0) announced_step_ = live.step;
  writer_.begin(live, state_.what_only_updates_change());
  parts_.pace.note_begun();
}

double Checkpointing::wait_for_the_save_before() {
  const train::Stopwatch stopwatch;
  writer_.wait();
  const double seconds = stopwatch.seconds();
  note_results();
  return seconds;
}

void Checkpointing::tell_of_waiting(double seconds) {
  waited_seconds_ += seconds;
  const auto& interval = parts_.job.spec().checkpoint.interval;
  const bool is_too_short = interval && !interval->is_auto() && waited_seconds_ > kWaitedSecondsToTell &&
                            waited_seconds_ > kWaitedShareToTell * since_start_.seconds();
  if (!is_too_short || std::exchange(has_told_of_waiting_, true)) return;
  log::warning("saves come faster than they are written: training has stood still for " +
               monitor::duration(waited_seconds_) + ". A save takes " + monitor::duration(save_seconds_) +
               " to write and " + monitor::duration(verify_seconds_) +
               " to read back: try a longer checkpoint.interval, or auto");
}

bool Checkpointing::settle() {
  const Activity activity("save", "last checkpoint");
  if (writes()) wait_for_the_save_before();
  return !fails_anywhere(failures_ > 0);
}

void Checkpointing::note_results() {
  for (const auto& result : writer_.take_results()) note(result);
  if (mirror_) mirror_->note_results();
}

void Checkpointing::finish_mirror(const std::function<double()>& seconds_left) {
  if (mirror_) mirror_->finish(seconds_left);
}

void Checkpointing::note(const checkpoint::BackgroundWriter::Result& result) {
  save_seconds_ = result.seconds;
  verify_seconds_ = result.verify_seconds;
  begun_.erase(begun_.begin(), begun_.find(result.step));  // the step itself may be saved once more
  if (!result.failure) {
    failures_ = 0;
    if (mirror_) mirror_->begin(result.folder);
    const Begun& begun = begun_.at(result.step);
    const double stall_seconds = begun.waited_seconds + result.stall_seconds;
    parts_.pace.note_written(stall_seconds, result.seconds + result.verify_seconds);
    parts_.ledger.append("checkpoint", {{"step", result.step},
                                        {"data", to_json(begun.usage)},
                                        {"bytes", result.bytes},
                                        {"seconds", result.seconds},
                                        {"verify_seconds", result.verify_seconds},
                                        {"stall_seconds", stall_seconds}});
    if (result.step == announced_step_) {
      parts_.console.line("save", "step " + grouped(result.step) + " on request  " + monitor::bytes(result.bytes) +
                                      " in " + monitor::duration(result.seconds) + "  " + result.folder.string());
    }
    return;
  }
  if (result.has_device_failed) throw Error(*result.failure);
  ++failures_;
  parts_.pace.note_failed();
  last_failure_ = reason_of(*result.failure);
  parts_.ledger.append("save_failed", {{"step", result.step}, {"reason", last_failure_}});
  const int64_t most = parts_.job.spec().checkpoint.max_save_failures;
  const std::string count = " (failure " + std::to_string(failures_) + " of " + std::to_string(most) + " in a row)";
  log::warning("no checkpoint of step " + std::to_string(result.step) + (failures_ <= most ? count : "") + ": " +
               result.failure->what());
}

bool Checkpointing::fails_anywhere(bool failed) {
  return !parts_.setup.context.groups.holds_everywhere(!failed, "checkpoint");
}

}  // namespace gputrain::app
