// The job's sections for the training loop: train, eval, checkpoint, limits, parallel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gputrain/cloud/notice.hpp"
#include "gputrain/config/describe.hpp"
#include "gputrain/train/sample_spec.hpp"

namespace gputrain::train {

/// An exponential moving average of the weights.
struct EmaSpec {
  double decay = 0.999;
  bool warmup = true;

  static void describe(config::Description<EmaSpec>& d);
};

/// Stochastic weight averaging: the mean of the weights at several points near the end.
struct SwaSpec {
  config::Length start{75, config::Length::Unit::percent};
  config::Length interval{1, config::Length::Unit::epochs};

  static void describe(config::Description<SwaSpec>& d);
};

/// What a GPU's memory is spared: it waits in the memory of the host.
struct OffloadSpec {
  bool activations = false;
  bool optimizer = false;

  static void describe(config::Description<OffloadSpec>& d);
};

struct TrainSpec {
  std::optional<double> max_epochs;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> max_tokens;
  std::optional<config::Duration> max_time;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> global_batch_tokens;
  std::optional<config::Auto<int64_t>> micro_batch_size;
  config::Auto<int64_t> gradient_accumulation_steps;
  double label_smoothing = 0;
  std::optional<double> max_grad_norm;
  std::string nonfinite = "stop";
  int64_t max_skips_in_a_row = 10;
  int64_t max_rollbacks = 3;
  std::optional<EmaSpec> ema;
  std::optional<SwaSpec> swa;
  config::Auto<bool> channels_last;
  std::string activation_checkpointing = "none";
  OffloadSpec offload;
  std::string cuda_graphs = "auto";
  config::Duration kernel_trials{.seconds = 120};

  bool names_global_batch() const noexcept { return global_batch_size || global_batch_tokens; }
  /// Returns whether the micro-batch size is found by trying sizes.
  bool searches_micro_batch() const noexcept { return micro_batch_size && micro_batch_size->is_auto(); }

  static void describe(config::Description<TrainSpec>& d);
};

struct EarlyStoppingSpec {
  int64_t patience = 5;
  double min_delta = 0;

  static void describe(config::Description<EarlyStoppingSpec>& d);
};

struct EvalSpec {
  std::optional<config::Length> interval = config::Length{1, config::Length::Unit::epochs};
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> batch_size;
  bool at_start = false;
  bool hflip = false;
  std::optional<EarlyStoppingSpec> early_stopping;
  std::optional<SampleSpec> sample;

  static void describe(config::Description<EvalSpec>& d);
};

struct CheckpointSpec {
  std::optional<config::Auto<config::Length>> interval = config::Auto<config::Length>{};
  int64_t keep_last = 2;
  int64_t keep_best = 1;
  std::optional<config::Length> keep_every;
  config::Auto<std::string> metric;
  int64_t max_save_failures = 3;
  std::optional<std::string> mirror;
  cloud::NoticeSpec notice;
  std::string resume = "auto";

  static void describe(config::Description<CheckpointSpec>& d);
};

struct IdleSpec {
  double min_gpu_utilization = 10;  // percent
  config::Duration time_window{1800};

  static void describe(config::Description<IdleSpec>& d);
};

struct LimitsSpec {
  std::optional<config::Duration> max_duration;
  std::optional<double> price_per_hour, max_cost;
  std::optional<IdleSpec> idle;
  std::optional<int64_t> max_attempts_without_progress = 5;

  static void describe(config::Description<LimitsSpec>& d);
};

struct ParallelSpec {
  std::string shard = "none";
  int64_t replicate = 1;
  int64_t context = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t virtual_stages = 1;
  config::Auto<double> bucket_cap_mb;
  bool sync_bn = false;
  std::string compress = "none";
  std::optional<config::Length> check_replicas = config::Length{1000, config::Length::Unit::steps};
  config::Duration timeout{600};

  static void describe(config::Description<ParallelSpec>& d);
};

}  // namespace gputrain::train
