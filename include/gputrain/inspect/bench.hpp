// Row of `gputrain bench train`: a combination of settings, and its speed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/job.hpp"
#include "gputrain/job/job_request.hpp"

namespace gputrain::app {

/// Values of the four settings that a benchmark varies. Empty or 0: the job's value.
struct BenchCombination {
  std::string precision;
  int64_t micro_batch = 0;
  std::string checkpointing;
  int64_t accumulation = 0;

  /// Returns the combination as `--set` arguments.
  std::vector<std::string> settings() const;
};

/// Returns settings that replace the job's data by synthetic data of the same shape. Throws Error(usage) if it cannot.
std::vector<std::string> synthetic_data(const Job& job);

struct BenchRow {
  std::string precision, checkpointing, unit;  // unit: "tokens" or "samples"
  int64_t micro_batch = 0, accumulation = 0;
  std::string failure;                   // empty: measured
  std::vector<double> seconds;           // time of each step
  std::vector<double> rates;             // units per second, of each step
  double flops_per_second = 0;           // rate of the model; 0: the model does not count its operations
  double peak_flops_per_second = 0;      // rate of the device; 0: unknown
  int64_t peak_bytes = 0;                // device memory, or process memory on a CPU
  double first_loss = 0, last_loss = 0;  // mean over the targets

  bool is_measured() const noexcept { return failure.empty(); }
  double rate() const;
  /// Returns half of the distance between the 10 % and 90 % quantiles of the rates, relative to their median.
  double spread() const;
  double utilization() const { return peak_flops_per_second > 0 ? flops_per_second / peak_flops_per_second : 0; }
};

nlohmann::json to_json(const BenchRow& row);
/// Reads a row. Throws nlohmann::json::exception.
BenchRow row_from_json(const nlohmann::json& json);

/// Compares, for each setting that varies, its values with the first one while the other settings are equal: "bf16 is
/// 1.90x fp32 and saves 35 % memory". Marks a ratio that may be chance.
std::vector<std::string> comparisons(const std::vector<BenchRow>& rows);

}  // namespace gputrain::app
