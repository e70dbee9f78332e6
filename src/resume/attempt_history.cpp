#include "gputrain/resume/attempt_history.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "gputrain/train/control_hook.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kProcessSeconds = "process_seconds";
constexpr double kLongestGap = 30 * 86400.0;  // seconds between two lines of an attempt

/// Returns whether a process that did not come to an attempt has written the line.
bool is_of_no_attempt(const std::string& kind) { return kind == "start_failed" || kind == "started_over"; }

/// Returns the rate in an order's or attempt's line; of a field that cannot be read, nothing.
RateChange change_in(const nlohmann::json& line) {
  RateChange change{.step = json_value(line, "step", int64_t{0})};
  try {
    change.rate = train::ordered_rate_from_json(line.at(train::kOrderedRate));
  } catch (const nlohmann::json::exception&) {
    change.is_known = false;
  }
  return change;
}

}  // namespace

double seconds_between(const nlohmann::json& line, const nlohmann::json& later) {
  const char* const clock =
      line.contains(kProcessSeconds) && later.contains(kProcessSeconds) ? kProcessSeconds : "time";
  const double seconds = json_value(later, clock, 0.0) - json_value(line, clock, 0.0);
  return seconds > 0 && seconds < kLongestGap ? seconds : 0;
}

std::vector<PastAttempt> attempts_of(const std::vector<nlohmann::json>& ledger) {
  std::vector<PastAttempt> attempts;
  const nlohmann::json* before = nullptr;  // the line before, of the same attempt
  for (const auto& line : ledger) {
    const std::string kind = json_value(line, "kind", "");
    const auto step = json_value(line, "step", int64_t{0});
    if (kind == "attempt") {
      attempts.push_back({.begin = json_value(line, "time", 0.0),
                          .seconds = json_value(line, kProcessSeconds, 0.0),
                          .first_step = step,
                          .planned_steps = json_value(line, "planned_steps", int64_t{0}),
                          .main_metric = json_value(line, "main_metric", "")});
      before = &line;
    }
    if (attempts.empty() || is_of_no_attempt(kind)) continue;
    PastAttempt& attempt = attempts.back();
    attempt.seconds += seconds_between(*std::exchange(before, &line), line);
    attempt.last_step = std::max(attempt.last_step, step);
    if (kind != "end") continue;
    attempt.exit_code = json_value(line, "exit_code", 0);
    attempt.reason = json_value(line, "reason", "");
  }
  return attempts;
}

std::vector<RateChange> rate_changes_in(const std::vector<nlohmann::json>& ledger, int64_t branch) {
  std::vector<RateChange> changes;
  bool is_in_branch = false;
  for (const auto& line : ledger) {
    const std::string kind = json_value(line, "kind", "");
    const bool is_attempt = kind == "attempt";
    if (is_attempt) is_in_branch = json_value(line, "branch", int64_t{1}) == branch;
    if (!is_in_branch) continue;
    if (is_attempt) {  // the attempt takes these steps again
      const auto step = json_value(line, "step", int64_t{0});
      std::erase_if(changes, [&](const RateChange& change) { return change.step >= step; });
    }
    const bool is_change = is_attempt ? line.contains(train::kOrderedRate) : json_value(line, "verb", "") == "set";
    if (is_change) changes.push_back(change_in(line));
  }
  return changes;
}

}  // namespace gputrain::app
