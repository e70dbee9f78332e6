// Whole job. Every module describes its own section; this file combines them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/data/spec.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/job/sweep_spec.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/alerts.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "gputrain/optim/spec.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::app {

/// Section `adapter: {type: NAME, ...}`: the adapter's own options beside its name.
struct AdapterSpec {
  config::Choice type{"lora"};

  static void describe(config::Description<AdapterSpec>& d);
};

/// Section `quantize: {type: NAME, ...}`: the packing's own options beside its name.
struct QuantizeSpec {
  config::Choice type{"nf4"};
  std::vector<std::string> match;

  static void describe(config::Description<QuantizeSpec>& d);
};

struct ModelSpec {
  config::Choice architecture;
  std::optional<std::string> pretrained;
  std::vector<std::string> freeze;
  std::optional<AdapterSpec> adapter;
  std::optional<QuantizeSpec> quantize;

  /// Returns the folder with the files of `pretrained`: itself, or in the Hugging Face cache; empty without it. Throws
  /// Error(data) for a name that is in neither place.
  std::filesystem::path pretrained_path() const;

  static void describe(config::Description<ModelSpec>& d);
};

/// Training task: loss and metrics.
struct TaskSpec {
  config::Choice type;  // empty: the task that fits the model and the data

  static void describe(config::Description<TaskSpec>& d);
};

/// Expected band [low, high] of each final metric, checked at the end.
struct ExpectSpec {
  std::map<std::string, std::vector<double>> bands;  // "val/top1": [low, high]
  std::optional<std::string> source;

  static void describe(config::Description<ExpectSpec>& d);
};

struct JobSpec : JobStart {
  ModelSpec model;
  TaskSpec task;
  data::DataSpec data;
  train::TrainSpec train;
  optim::OptimizerSpec optimizer;
  optim::LrSchedulerSpec lr_scheduler;
  train::EvalSpec eval;
  train::LimitsSpec limits;
  train::ParallelSpec parallel;
  monitor::LogSpec log;
  std::vector<monitor::AlertSpec> alerts;
  std::optional<ExpectSpec> expect;
  std::optional<SweepSpec> sweep;

  static void describe(config::Description<JobSpec>& d);
};

}  // namespace gputrain::app
