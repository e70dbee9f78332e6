#include "gputrain/resume/run_mirror.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {
RunMirror::RunMirror(Parts parts) : parts_(std::move(parts)) {
  if (!parts_.writes) return;
  std::error_code unknown;
  std::filesystem::create_directories(parts_.folder, unknown);
  lock();
  copies_.emplace(parts_.folder, parts_.retention, parts_.branch);
}

/// Locks the mirror: two runs would remove each other's copies.
void RunMirror::lock() {
  try {
    lock_ = RunLock(parts_.folder);
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) {
      throw Error(ExitCode::usage, {.what = "checkpoint.mirror is that of a run under way: " + error.parts().what,
                                    .where = parts_.folder.string(),
                                    .hint = "a folder for each run: checkpoint.mirror: /mnt/backup/${name}"});
    }
    log::warning(std::string("the mirror cannot be written now: ") + error.what());
  }
}

void RunMirror::begin(const std::filesystem::path& checkpoint) {
  if (!copies_) return;
  const bool was_away = std::exchange(is_away_, !lock_.is_held());
  if (!is_away_) return copies_->begin(checkpoint);
  parts_.ledger.append("mirror_failed", {{"folder", checkpoint.filename().string()}, {"reason", "the mirror is away"}});
  if (was_away) return;
  log::warning("the mirror has been moved, removed or unmounted: " + parts_.folder.string() +
               "; there are no second copies until it is back");
}

void RunMirror::hold(bool held) {
  if (copies_) copies_->hold(held);
}

/// Leaves the results to note_results(): the ledger has no line about this attempt yet.
CopyResult RunMirror::copy_now(const std::filesystem::path& checkpoint, double seconds) {
  if (!copies_) return CopyResult::failed;
  begin(checkpoint);
  if (is_away_ || !copies_->wait(seconds)) return CopyResult::failed;
  const auto results = copies_->take_results();
  results_.insert(results_.end(), results.begin(), results.end());
  if (results.empty()) return CopyResult::was_there;
  return results.back().failure ? CopyResult::failed : CopyResult::made;
}

void RunMirror::note_results() {
  if (!copies_) return;
  for (const auto& result : std::exchange(results_, {})) note(result);
  for (const auto& result : copies_->take_results()) note(result);
}

void RunMirror::note(const checkpoint::Mirror::Result& result) {
  if (!result.failure) {
    told_.clear();
    parts_.ledger.append("mirror", {{"step", result.step}, {"bytes", result.bytes}, {"seconds", result.seconds}});
    return;
  }
  parts_.ledger.append("mirror_failed", {{"step", result.step}, {"reason", reason_of(*result.failure)}});
  const std::string& cause = result.failure->parts().what;
  if (std::exchange(told_, cause) == cause) return;
  log::warning("no second copy of step " + std::to_string(result.step) + ": " + result.failure->what());
}

void RunMirror::finish(const std::function<double()>& seconds_left) {
  constexpr double kLookEverySeconds = 0.1;
  if (!copies_) return;
  bool is_done = copies_->wait(0);
  if (!is_done) parts_.console.line("mirror", "copying the last checkpoint to " + parts_.folder.string());
  while (!is_done && seconds_left() > 0) is_done = copies_->wait(std::min(kLookEverySeconds, seconds_left()));
  note_results();
  if (!is_done) log::warning("the mirror does not have the last checkpoint yet; the next attempt copies it first");
}

}  // namespace gputrain::app
