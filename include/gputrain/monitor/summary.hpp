// summary.json: how a run ended, for programs. Written at every end, also a failed one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

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

}  // namespace gputrain::monitor
