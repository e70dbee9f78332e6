// Feeds the loop: the next step's data together with what all ranks agreed on about it, one step ahead.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::train {

/// What the ranks told each other before a step.
struct Agreement {
  int64_t weight = 0;        // targets of the step over all ranks
  int64_t samples = 0;       // samples of the step over all ranks
  int stop_signal = 0;       // SIGINT or SIGTERM arrived somewhere: stop after this step
  std::vector<bool> wishes;  // rank 0's wishes, as given to prefetch()
};

class Feed {
 public:
  struct Step {
    data::StepData data;
    Agreement agreed;
    double wait_seconds = 0;  // how long the loop waited for the data
  };

  Feed(data::Loader& loader, comm::ProcessGroups& groups) : loader_(loader), groups_(groups) {}

  /// Fetches a step's data and starts agreeing on it with the other ranks; call once the step before it runs on the
  /// device. `wishes` are this rank's, of the same number everywhere. Every rank must call.
  void prefetch(const std::vector<bool>& wishes);
  /// The step fetched last, agreed on.
  Step next();

 private:
  data::Loader& loader_;
  comm::ProcessGroups& groups_;
  std::optional<Step> fetched_;
  at::Tensor sums_;        // int64: weight, samples, ranks with SIGINT, ranks with SIGTERM, wishes of rank 0
  comm::Pending pending_;  // the sum of sums_ over the ranks
};

/// Installs handlers that note SIGINT and SIGTERM; a second SIGINT ends the process at once (exit code 130).
void watch_signals();
/// The first signal noted since watch_signals(), or 0.
int noted_signal() noexcept;

}  // namespace gputrain::train
