// The attempts of a run, as its ledger tells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

struct PastAttempt {
  double begin = 0, last = 0;  // times of its first and its newest line
  int64_t first_step = 0;      // where it went on
  int64_t last_step = 0;       // of its end, or of its newest line that names a step
  std::optional<int> exit_code;
  std::string reason;  // empty: it was killed, or still runs
};

/// In order.
std::vector<PastAttempt> attempts_of(const std::vector<nlohmann::json>& ledger);

}  // namespace gputrain::app
