// End of a run, for programs (summary.json). Written at the start and at every end, also after a failure, so that it
// always describes the newest attempt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/monitor/record.hpp"

namespace gputrain::monitor {

struct Best {
  double value = 0;
  int64_t step = 0;
};

struct Summary {
  std::string run_id;
  std::string status = "failed";  // done | stopped | failed
  int exit_code = 1;
  std::string reason;
  std::string stopped_by;  // cause of "stopped": limits.max_duration, limits.max_cost, limits.idle, notice, SIGUSR1,
                           // SIGINT, SIGTERM
  int64_t step = 0;
  double epoch = 0;
  int64_t samples = 0;
  int64_t tokens = 0;  // 0 if the data has no tokens
  int world_size = 1;
  int64_t attempts = 1;
  Metrics metrics;  // last value of each
  std::map<std::string, Best> best;
  double samples_per_second = 0;  // over this attempt's training time, first step excluded
  double tokens_per_second = 0;
  double wall_seconds = 0;                // this attempt
  double total_seconds = 0;               // all attempts
  std::optional<double> cost = {};        // that time at limits.price_per_hour
  std::optional<double> cost_limit = {};  // limits.max_cost
  double first_step_seconds = 0;          // from process start to the end of the first optimizer step
  int64_t sent_bytes_per_step = 0;        // average of one rank for gradients and weights
  int64_t uncompressed_bytes_per_step = 0;
  int64_t peak_memory_bytes = 0;  // device memory on a GPU; resident memory of this process on the CPU
};

/// Replaces `path` atomically. Throws Error(environment) on a disk error.
void write_summary(const std::filesystem::path& path, const Summary& summary);

/// Attempt that has not started training, or has not ended yet.
struct Beginning {
  std::string run_id;
  std::string status = "begun";  // begun | failed
  std::optional<int> exit_code;
  std::string reason = "still running, or ended before it could report why";
};
/// Writes the beginning of an attempt and keeps the newest known end as "before".
void write_beginning(const std::filesystem::path& path, const Beginning& beginning);
/// Reads the end of the newest attempt that trained; an empty object if unknown.
nlohmann::ordered_json newest_end(const std::filesystem::path& path);
/// Undoes write_beginning(): restores the newest end, because this attempt does not count.
void restore_newest_end(const std::filesystem::path& path);

}  // namespace gputrain::monitor
