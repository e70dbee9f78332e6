// The records that a run writes into its ledger, and reads there again.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/data/sample_usage.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/progress.hpp"
#include "gputrain/train/save_pace.hpp"

namespace gputrain::app {

/// Writes the fingerprint as hexadecimal digits, because other JSON readers lose whole numbers of 64 bits.
nlohmann::json to_json(const data::SampleUsage& usage);
/// Throws nlohmann::json::exception, or std::logic_error for digits that are none.
data::SampleUsage usage_from_json(const nlohmann::json& json);

nlohmann::json to_json(const data::OrderFacts& order);
data::OrderFacts order_from_json(const nlohmann::json& json);

nlohmann::json end_record(const monitor::Summary& summary, const train::Progress& progress);

/// Return an error for records: where and what, on one line, and the exit code with which the process ends.
std::string reason_of(const std::exception& failure);
int exit_code_of(const std::exception& failure);

/// The properties that tell training data from other data; 0 or empty: not known.
struct DataIdentity {
  int64_t samples = 0;
  uint64_t target_names = 0;  // hash of the names of classes or texts of tokens
  std::string content = {};   // on rank 0: content_digits()
};
DataIdentity identity_of(const TrainingSetup& setup);
/// Returns the identity of the data of the run's newest attempt.
DataIdentity identity_before(const std::vector<nlohmann::json>& ledger);

nlohmann::json attempt_record(const Job& job, const TrainingSetup& setup, const train::Progress& progress,
                              const DataIdentity& identity);

/// Returns the number of attempts so far: the lines about them, or the highest number of one. In a folder that goes on
/// from another's checkpoint, the first attempt has not the number 1.
int64_t attempts_in(const std::vector<nlohmann::json>& ledger);

/// Attempts that died one after the other without coming past `step`, and why the last one did.
struct Stuck {
  int64_t attempts = 0;
  std::string reason;
};
Stuck stuck_at(const std::vector<nlohmann::json>& ledger, int64_t step);

/// Counts the attempts that ended by a failure or without a word, and their time.
train::InterruptionStats interruptions_in(const std::vector<nlohmann::json>& ledger);

}  // namespace gputrain::app
