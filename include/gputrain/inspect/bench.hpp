// One row of `gputrain bench train`: a combination of settings, and how fast training is with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/commands.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Values of the four settings that a benchmark varies; empty or 0: as the job says.
struct BenchCombination {
  std::string precision;
  int64_t micro_batch = 0;
  std::string checkpointing;
  int64_t accumulation = 0;

  /// As lines of `--set`.
  std::vector<std::string> settings() const;
};

/// All of them, in the order of the request's lists, precision outermost.
std::vector<BenchCombination> combinations_of(const BenchRequest& request);

/// Settings that put made-up data of the same shape in place of the job's. Throws Error(usage) where it cannot be.
std::vector<std::string> synthetic_data(const Job& job);

struct BenchRow {
  std::string precision, checkpointing, unit;  // unit: "tokens" or "samples"
  int64_t micro_batch = 0, accumulation = 0;
  std::string failure;                   // empty: it was measured
  std::vector<double> seconds;           // of each step
  std::vector<double> rates;             // units per second in each step
  double flops_per_second = 0;           // of the model, 0: it does not count them
  double peak_flops_per_second = 0;      // of the device, 0: not known
  int64_t peak_bytes = 0;                // of the device, on a CPU of the process
  double first_loss = 0, last_loss = 0;  // means over the targets

  bool is_measured() const noexcept { return failure.empty(); }
  double rate() const;
  /// Half of the way from the first to the ninth tenth of the rates, as a part of their median.
  double spread() const;
  double utilization() const { return peak_flops_per_second > 0 ? flops_per_second / peak_flops_per_second : 0; }
};

nlohmann::json to_json(const BenchRow& row);
/// Throws nlohmann::json::exception.
BenchRow row_from_json(const nlohmann::json& json);

/// "bf16 is 1.90x fp32 and saves 35 % memory": for each setting that varies, its values against the first one, the
/// others being equal. A ratio that may be chance is marked.
std::vector<std::string> comparisons(const std::vector<BenchRow>& rows);

}  // namespace gputrain::app
