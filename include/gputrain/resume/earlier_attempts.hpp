// The facts that a new attempt reads in the ledger about the ones before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/run_folder.hpp"
#include "gputrain/resume/record.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/progress.hpp"
#include "gputrain/train/save_pace.hpp"

namespace gputrain::app {

/// Rank 0 knows, and tells the others.
class EarlierAttempts {
 public:
  /// Reads the ledger, on rank 0. Everything given outlives it.
  EarlierAttempts(const Job& job, TrainingSetup& setup, const RunFolder& folder);

  /// Returns the number of the attempt that goes on from `progress`; the first one is 1. Every rank must call.
  int64_t number_of_next(const train::Progress& progress) const;

  /// Throws Error(usage) if the training data is not that of the last attempt, amid a run; with `accept_changes` it
  /// only warns. Every rank must call.
  void check_data(const train::Progress& progress, const DataIdentity& now, bool accept_changes) const;

  /// Throws Error(no_restart) if limits.max_attempts_without_progress of them came to nothing. Every rank must call.
  void refuse_if_stuck(const train::Progress& progress) const;

  /// Throws Error(no_restart) if they have cost limits.max_cost. Every rank must call.
  void refuse_if_spent() const;

  /// Returns their time in seconds; on rank 0.
  double seconds() const;

  /// Returns the rate that an order has set: the ledger's, which has orders that no checkpoint has any more, or else
  /// the checkpoint's. The job's own rate counts if the job now has another optimizer.lr, with a warning. Every rank
  /// must call.
  std::optional<train::OrderedRate> ordered_rate(const train::Progress& progress, int64_t branch) const;

  /// Returns how often they were lost; on rank 0.
  train::InterruptionStats interruptions() const;

 private:
  const Job& job_;
  TrainingSetup& setup_;
  std::filesystem::path folder_;
  std::vector<nlohmann::json> ledger_;  // rank 0's; empty on others
};

}  // namespace gputrain::app
