#include "gputrain/resume/attempt_history.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace gputrain::app {

std::vector<PastAttempt> attempts_of(const std::vector<nlohmann::json>& ledger) {
  std::vector<PastAttempt> attempts;
  for (const auto& line : ledger) {
    const double time = line.value("time", 0.0);
    const std::string kind = line.value("kind", "");
    const auto step = line.value("step", int64_t{0});
    if (kind == "attempt") attempts.push_back({.begin = time, .first_step = step});
    if (attempts.empty()) continue;
    PastAttempt& attempt = attempts.back();
    attempt.last = time;
    attempt.last_step = std::max(attempt.last_step, step);
    if (kind != "end") continue;
    attempt.exit_code = line.value("exit_code", 0);
    attempt.reason = line.value("reason", "");
  }
  return attempts;
}

}  // namespace gputrain::app
