#include "gputrain/resume/earlier_attempts.hpp"

#include <algorithm>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {

EarlierAttempts::EarlierAttempts(const Job& job, Assembly& assembly, const RunFolder& folder)
    : job_(job), assembly_(assembly), folder_(folder.path) {
  if (assembly.place.rank() == 0) ledger_ = monitor::read_ledger(folder.ledger()).lines;
}

/// The ledger, which only rank 0 has, knows of those that were killed before they saved, and the checkpoint of those
/// that came before it in another folder.
int64_t EarlierAttempts::number_of_next(const train::Progress& progress) const {
  const at::Tensor number = at::full({}, std::max(progress.attempts, attempts_in(ledger_)) + 1, at::kLong);
  assembly_.place.groups.control().broadcast(number, 0, "number of the attempt");
  return number.item<int64_t>();
}

/// Files that come or go between two attempts change which sample stands where: an epoch begun with the old order is
/// not finished by the new one. Classes of other names, or other characters, make labels mean something else.
void EarlierAttempts::check_data(const train::Progress& progress, bool accept_changes) const {
  if (progress.step == 0 || progress.step >= assembly_.plan.total_steps) return;
  const std::string& path = job_.spec().data.train.path;
  const DataIdentity now = identity_of(*assembly_.datasets.train), told = identity_before(ledger_);
  const at::Tensor shared =
      at::tensor(std::vector<int64_t>{told.samples, static_cast<int64_t>(told.target_names)}, at::kLong);
  assembly_.place.groups.control().broadcast(shared, 0, "data of the last attempt");  // only rank 0 has a ledger
  const int64_t samples = shared.const_data_ptr<int64_t>()[0];
  const auto target_names = static_cast<uint64_t>(shared.const_data_ptr<int64_t>()[1]);
  std::string what, effect;
  if (samples != 0 && samples != now.samples) {
    what = counted(samples, "sample") + " before, " + grouped(now.samples) + " now";
    effect = "samples come in another order from here on, and not each is used once in the epoch at hand";
  }
  if (target_names != 0 && target_names != now.target_names) {
    const std::string kind = assembly_.datasets.tokens_per_sample() > 0 ? "characters" : "classes";
    what += (what.empty() ? "" : "; ") + ("its " + kind + " are not those of before");
    effect += (effect.empty() ? "" : "; ") + ("numbers that the model has learned stand for other " + kind);
  }
  if (what.empty()) return;
  what = "the training data has changed: " + what + ", at step " + grouped(progress.step);
  if (!accept_changes) {
    throw Error(ExitCode::usage, {.what = what,
                                  .where = path.empty() ? "data.train" : path,
                                  .hint = "put the data back as it was, or --accept to go on: " + effect});
  }
  log::warning(what + ": " + effect);
}

/// A job that always dies at the same place must not be started for ever on rented machines.
void EarlierAttempts::refuse_if_stuck(const train::Progress& progress) const {
  const auto& limit = job_.spec().limits.max_attempts_without_progress;
  if (!limit) return;
  Stuck stuck;
  if (assembly_.place.rank() == 0) stuck = stuck_at(ledger_, progress.step);
  const at::Tensor attempts = at::full({}, stuck.attempts, at::kLong);
  assembly_.place.groups.control().broadcast(attempts, 0, "attempts without progress");
  if (attempts.item<int64_t>() < *limit) return;
  throw Error(ExitCode::no_restart,
              {.what = counted(attempts.item<int64_t>(), "attempt") + " in a row did not come past step " +
                       std::to_string(progress.step) + (stuck.reason.empty() ? "" : "; the last one: " + stuck.reason),
               .where = folder_.string(),
               .hint = "mend the cause, then start once with --accept"});
}

train::LossRecord EarlierAttempts::losses() const { return losses_in(ledger_); }

}  // namespace gputrain::app
