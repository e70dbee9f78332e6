// summary.json: how a run ended, for programs. Written at every end, also a failed one, and at every beginning: what it
// says is always of the newest attempt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/monitor/metrics_file.hpp"

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
  std::string stopped_by;  // of what was stopped: limits.max_duration, notice, SIGUSR1, SIGINT, SIGTERM
  int64_t step = 0;
  double epoch = 0;
  int64_t samples = 0;
  int64_t tokens = 0;  // 0 for data without tokens
  int world_size = 1;
  int64_t attempts = 1;
  Metrics metrics;  // last value of each
  std::map<std::string, Best> best;
  double samples_per_second = 0;  // over this attempt's training time, first step excluded
  double tokens_per_second = 0;
  double wall_seconds = 0;          // this attempt
  double first_step_seconds = 0;    // from process start to the end of the first optimizer step
  int64_t sent_bytes_per_step = 0;  // what a rank sends for gradients and weights, on average
  int64_t uncompressed_bytes_per_step = 0;
  int64_t peak_memory_bytes = 0;  // device memory on a GPU, resident memory of this process on the CPU
};

/// Replaces `path` in one step; throws Error(environment) when the disk refuses.
void write_summary(const std::filesystem::path& path, const Summary& summary);

/// Of an attempt that has not come to train, or is still at it.
struct Beginning {
  std::string run_id;
  std::string status = "begun";  // begun | failed
  std::optional<int> exit_code;
  std::string reason = "it is under way, or was ended before it could say why";
};
/// Keeps the newest end that is known as "before".
void write_beginning(const std::filesystem::path& path, const Beginning& beginning);
/// How the newest attempt ended that has come to train; an empty object: that is not known.
nlohmann::ordered_json newest_end(const std::filesystem::path& path);
/// The attempt that has begun was none: the newest end is in its place again.
void restore_newest_end(const std::filesystem::path& path);

}  // namespace gputrain::monitor
