// The attempts of a run, as its ledger tells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/train/progress.hpp"

namespace gputrain::app {

struct PastAttempt {
  double begin = 0;           // time of its first line, in Unix time
  double seconds = 0;         // time from the start of its process to its newest line
  int64_t first_step = 0;     // step at which it began
  int64_t last_step = 0;      // step of its end, or of its newest line that names a step
  int64_t planned_steps = 0;  // 0: time ends it, or an older version has written it
  std::string main_metric;    // "val/top1": says which checkpoint is the best; empty: not known
  std::optional<int> exit_code;
  std::string reason;  // empty: it was killed, or still runs
};

/// Returns the attempts in order.
std::vector<PastAttempt> attempts_of(const std::vector<nlohmann::json>& ledger);

/// Returns seconds from one line of an attempt to a later one. Ledgers of older versions have the time of day alone: a
/// gap that cannot be true counts as none.
double seconds_between(const nlohmann::json& line, const nlohmann::json& later);

/// A learning rate that counts from a step on.
struct RateChange {
  int64_t step = 0;                        // the rate counts after it
  std::optional<train::OrderedRate> rate;  // empty: the job's
  bool is_known = true;                    // false: an older version has written the order, without its rate
};

/// Returns the changes by orders and attempts that count for this branch's steps as they were taken last. In order.
std::vector<RateChange> rate_changes_in(const std::vector<nlohmann::json>& ledger, int64_t branch);

}  // namespace gputrain::app
