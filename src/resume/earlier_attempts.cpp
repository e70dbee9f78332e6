#include "gputrain/resume/earlier_attempts.hpp"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/attempt_history.hpp"
#include "gputrain/train/spending.hpp"

namespace gputrain::app {

EarlierAttempts::EarlierAttempts(const Job& job, TrainingSetup& setup, const RunFolder& folder)
    : job_(job), setup_(setup), folder_(folder.path) {
  if (setup.context.rank() == 0) ledger_ = monitor::read_ledger(folder.ledger()).lines;
}

/// The ledger, which only rank 0 has, knows the attempts that were killed before they saved. The checkpoint knows those
/// that came before it in another folder.
int64_t EarlierAttempts::number_of_next(const train::Progress& progress) const {
  const int64_t number = std::max(progress.attempts, attempts_in(ledger_)) + 1;
  return setup_.context.groups.from_rank_zero(number, "number of the attempt");
}

/// Files that come or go between two attempts change the places of samples: the new order does not finish an epoch that
/// was begun with the old one. Classes of other names, or other characters, make labels mean something else. Files may
/// also have been written anew, with as many samples.
void EarlierAttempts::check_data(const train::Progress& progress, const DataIdentity& now, bool accept_changes) const {
  if (progress.step == 0 || progress.step >= setup_.plan.total_steps) return;
  const std::string& path = job_.spec().data.train.path;
  const DataIdentity told = identity_before(ledger_);
  auto& groups = setup_.context.groups;  // only rank 0 has a ledger
  const int64_t samples = groups.from_rank_zero(told.samples, "samples of the last attempt");
  const auto target_names = static_cast<uint64_t>(
      groups.from_rank_zero(static_cast<int64_t>(told.target_names), "targets of the last attempt"));
  const bool is_other = !told.content.empty() && !now.content.empty() && told.content != now.content;
  const bool has_other_content = groups.from_rank_zero(is_other ? 1 : 0, "content of the last attempt") != 0;
  std::string what, effect;
  if (samples != 0 && samples != now.samples) {
    what = counted(samples, "sample") + " before, " + grouped(now.samples) + " now";
    effect = "samples come in another order from here on, and not each is used once in the epoch at hand";
  }
  if (target_names != 0 && target_names != now.target_names) {
    const std::string kind = setup_.datasets.target_kind() == "class" ? "classes" : "characters";
    what += (what.empty() ? "" : "; ") + ("its " + kind + " are not those of before");
    effect += (effect.empty() ? "" : "; ") + ("numbers that the model has learned stand for other " + kind);
  }
  if (what.empty() && has_other_content) {
    what = "as many samples as before, but files of other content";
    effect = "the epoch at hand goes on with samples of the new data";
  }
  if (what.empty()) return;
  what = "the training data has changed: " + what + ", at step " + grouped(progress.step);
  if (!accept_changes) {
    throw Error(ExitCode::usage, {.what = what,
                                  .where = path.empty() ? "data.train" : path,
                                  .hint = "put the data back as it was; or " + ways_to_start_over(job_) +
                                          "; or --accept to go on: " + effect});
  }
  log::warning(what + ": " + effect);
}

/// Refuses a job that always dies at the same place, so that it is not started for ever on rented machines.
void EarlierAttempts::refuse_if_stuck(const train::Progress& progress) const {
  const auto& limit = job_.spec().limits.max_attempts_without_progress;
  if (!limit) return;
  Stuck stuck;
  if (setup_.context.rank() == 0) stuck = stuck_at(ledger_, progress.step);
  const int64_t attempts = setup_.context.groups.from_rank_zero(stuck.attempts, "attempts without progress");
  if (attempts < *limit) return;
  throw Error(ExitCode::no_restart,
              {.what = counted(attempts, "attempt") + " in a row did not come past step " +
                       std::to_string(progress.step) + (stuck.reason.empty() ? "" : "; the last one: " + stuck.reason),
               .where = folder_.string(),
               .hint = "remove the cause, then start once with --accept"});
}

double EarlierAttempts::seconds() const {
  double all = 0;
  for (const PastAttempt& attempt : attempts_of(ledger_)) all += attempt.seconds;
  return all;
}

void EarlierAttempts::refuse_if_spent() const {
  const auto& limits = job_.spec().limits;
  const train::Spending own{.sum = seconds() / 3600 * limits.price_per_hour.value_or(0),
                            .per_hour = limits.price_per_hour.value_or(0),
                            .most = limits.max_cost};
  const std::string told = own.is_over() ? std::to_string(own.sum) : "";
  const std::string spent = setup_.context.groups.from_rank_zero(told, "what earlier attempts have cost");
  if (spent.empty()) return;
  train::Spending spending = own;
  spending.sum = std::stod(spent);
  throw Error(ExitCode::no_restart,
              {.what = "earlier attempts have cost " + monitor::money(spending.sum) + " and limits.max_cost is " +
                       monitor::significant(*spending.most) + ": nothing is trained or evaluated",
               .where = folder_.string(),
               .hint = "--set " + spending.setting_to_go_on() + ", or another value above it, goes on"});
}

std::optional<train::OrderedRate> EarlierAttempts::ordered_rate(const train::Progress& progress, int64_t branch) const {
  const std::string& resume = job_.spec().checkpoint.resume;
  auto rate = progress.ordered_rate;
  if (resume == "auto" || resume == "must") {
    const auto changes = rate_changes_in(ledger_, branch);
    const auto newest = std::ranges::find_if(changes.rbegin(), changes.rend(), &RateChange::is_known);
    if (newest != changes.rend()) rate = newest->rate;
  }
  rate = train::ordered_rate_from_json(nlohmann::json::parse(
      setup_.context.groups.from_rank_zero(train::to_json(rate).dump(), "rate that an order has set")));
  const double job_lr = job_.spec().optimizer.lr;
  if (!rate || rate->job_lr == job_lr) return rate;
  if (setup_.context.rank() == 0)
    log::warning("optimizer.lr is " + monitor::significant(job_lr) + " now, it was " +
                 monitor::significant(rate->job_lr) + " when an order set the rate to " +
                 monitor::significant(rate->lr) + ": the job's rate counts again");
  return std::nullopt;
}

train::InterruptionStats EarlierAttempts::interruptions() const { return interruptions_in(ledger_); }

}  // namespace gputrain::app
