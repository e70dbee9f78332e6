// Why an attempt stops early: limits, notices of the cloud, divergence; and what it does between steps for its saves.
#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/cloud/notice.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/resume/record.hpp"
#include "gputrain/run/training.hpp"
#include "gputrain/train/preemption.hpp"
#include "next_command.hpp"

namespace gputrain::app {

/// Starts to poll the cloud, on one rank of each machine.
void Training::watch_notices() {
  const auto sources = cloud::read_metadata_sources();
  if (!spec_.checkpoint.notice.watches() || setup_.context.launch.rendezvous.local_rank != 0) return;
  notices_ = std::make_unique<cloud::NoticeWatcher>(
      cloud::NoticeWatcher::Options{.interval_seconds = spec_.checkpoint.notice.interval.seconds,
                                    .has_gpu = setup_.context.device.is_cuda(),
                                    .sources = sources});
}

/// Waits for the copy to the mirror only as long as the machine is likely to exist: the checkpoint is already safe in
/// the run folder.
void Training::finish_mirror() {
  constexpr double kSeconds = 600, kSecondsOnRequest = 10, kSecondsToLeave = 3;
  const train::Stopwatch waited;
  checkpointing_.finish_mirror([&] {
    const auto notice = notices_ ? notices_->notice() : std::nullopt;
    const double machine_seconds = notice ? notice->seconds_left() - kSecondsToLeave : kSeconds;
    // The notice is for another host. Its ranks wait for this one, and the next attempt copies to the mirror.
    const bool is_of_another_host = stop_ == train::Stop::notice && !notice;
    const bool is_asked = stop_ > train::Stop::notice || is_of_another_host || train::noted_stop() != train::Stop::none;
    return std::min(machine_seconds, (is_asked ? kSecondsOnRequest : kSeconds) - waited.seconds());
  });
}

/// Handles the results of background saves, and prints the save interval when it changes.
void Training::look_at_saves() {
  constexpr double kOften = 1;
  if (since_lock_check_.seconds() >= kOften) {
    lock_.check();
    since_lock_check_.lap();
  }
  checkpointing_.note_results();
  if (!setup_.plan.save.is_auto) return;
  pace_.set_notices_watched(notices_ && notices_->counts().polls > 0);
  if (const std::string news = pace_.take_news(); !news.empty()) console_.line("save", news);
}

std::string Training::notice_text() const { return notices_ ? "  spot notice: " + notices_->description() : ""; }

/// Logs a notice of the cloud once, and once more when it is time to leave. Returns whether it is time to leave.
bool Training::is_leaving() {
  if (!notices_) return false;
  for (const std::string& remark : notices_->take_remarks()) log::warning(remark);
  const auto notice = notices_->notice();
  if (!notice) return false;
  const bool is_urgent = notice->is_urgent(checkpointing_.save_seconds());
  if (is_urgent && !std::exchange(way_made_, true))
    log::own_warning(notice->text() + std::string(cloud::kMakesWay));
  else if (!is_urgent && !std::exchange(notice_told_, true))
    log::own_warning(notice->text());
  return is_urgent;
}

/// Signals and notices may reach any rank. Only rank 0 checks limits of time and cost. Asked before each step and each
/// batch of an evaluation: what is over limits.max_cost does not begin.
train::Stop Training::own_stop() {
  note_reached();
  const train::Stop signalled = train::noted_stop();
  if (signalled != train::Stop::none) return signalled;
  if (is_leaving()) return train::Stop::notice;
  if (setup_.context.rank() != 0) return train::Stop::none;
  const auto spending = cost();
  if (spending && spending->is_over() && (is_testing_ || !is_finished())) return train::Stop::spent;
  const auto& limit = spec_.limits.max_duration;
  if (limit && seconds_since_process_start() >= limit->seconds) return train::Stop::max_duration;
  return planned_end();
}

/// Returns the end that is part of the job and is reached, perhaps in the previous attempt.
train::Stop Training::planned_end() const {
  if (train::is_patience_over(spec_.eval.early_stopping, progress_)) return train::Stop::early_stop;
  const double max_seconds = setup_.plan.max_seconds;
  return max_seconds > 0 && progress_.train_seconds >= max_seconds ? train::Stop::max_time : train::Stop::none;
}

/// Returns whether nothing is left to train or to evaluate on data.val.
bool Training::is_finished() const {
  const bool is_trained = progress_.step >= setup_.plan.total_steps || planned_end() != train::Stop::none;
  return is_trained && (!setup_.datasets.val || progress_.is_evaluated());
}

/// Restores the newest good checkpoint and continues with the data after the present step. The same data would diverge
/// again, because everything is deterministic.
void Training::roll_back(const std::string& finding) {
  lock_.check();
  const int64_t most = spec_.train.max_rollbacks;
  if (progress_.rollbacks >= most) {
    throw Error(ExitCode::refused,
                {.what = "training diverged: " + finding + ", after " + counted(most, "rollback"),
                 .hint = "lower optimizer.lr, or set train.max_grad_norm: 1.0; train.max_rollbacks allows more"});
  }
  const int64_t step = progress_.step;
  const int64_t back_to = checkpointing_.roll_back(progress_, finding);
  const data::SampleUsage passed_over = data::expected_usage(order_facts(spec_, setup_), back_to, step);
  ledger_.append("rollback", {{"step", step},
                              {"back_to", back_to},
                              {"data", to_json(progress_.usage)},
                              {"passed_over", to_json(passed_over)},
                              {"rollback", progress_.rollbacks}});
  const std::string text = "to the weights of step " + grouped(back_to) + ", on with the data after step " +
                           grouped(step) + ": " + counted(passed_over.samples, "sample") + " passed over (" +
                           std::to_string(progress_.rollbacks) + " of at most " + std::to_string(most) + ")";
  log::warning(finding);
  recorder_.log({.step = step, .epoch = setup_.plan.epochs_in(step), .kind = "event", .label = "back", .text = text});
  checkpointing_.save(progress_, train::SaveMode::background);  // so that a resumed run does not diverge again
}

void Training::tell_end(const monitor::Summary& summary, const Expectation& expectation) {
  const std::string& resume = spec_.checkpoint.resume;
  const bool resumes = request_.is_new || resume == "auto" || resume == "must";
  const bool is_alone = setup_.context.groups.alone();
  const auto spending = cost();
  const std::string setting = stop_ == train::Stop::spent ? spending->setting_to_go_on() : "";
  print_ending(console_,
               {.summary = summary,
                .plan = setup_.plan,
                .expectation = expectation,
                .folder = folder_,
                .main_metric = watched_metric_of(spec_, setup_.datasets),
                .cost = spending,
                .go_on = is_alone ? command_to_go_on(request_.job, resumes, setting) : "",
                .same = same_command(resume, request_.is_new) + (setting.empty() ? "" : " with --set " + setting),
                .longer = what_lasts_longer(),
                .use = command_to_use(job_, request_.job, setup_.datasets)});
}

/// Returns the seconds that the run still takes: by this attempt's steps, or else by those of earlier ones; 0: unknown,
/// or nothing is left.
double Training::seconds_left() const {
  const train::Plan& plan = setup_.plan;
  if (const double measured = log_.seconds_left(progress_); measured > 0) return measured;
  if (progress_.step == 0 || progress_.train_seconds <= 0) return plan.is_time_limited() ? plan.max_seconds : 0;
  const double trained = progress_.train_seconds, besides = progress_.eval_seconds + progress_.save_seconds;
  const double per_step = trained / static_cast<double>(progress_.step);
  return plan.seconds_left(progress_.step, trained, per_step) * (1 + besides / trained);
}

/// Returns what all attempts have cost; empty: the price is unknown. On rank 0, which alone knows of earlier ones.
std::optional<train::Spending> Training::cost() const {
  const auto& limits = spec_.limits;
  if (!limits.price_per_hour) return std::nullopt;
  const double price = *limits.price_per_hour / 3600, left = seconds_left();
  train::Spending spending{.sum = (earlier_seconds_ + seconds_since_process_start()) * price,
                           .per_hour = *limits.price_per_hour,
                           .most = limits.max_cost};
  if (left > 0) spending.expected = spending.sum + left * price;
  return spending;
}

}  // namespace gputrain::app
