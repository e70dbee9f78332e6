// The whole job: every room describes its section, this file puts them together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/data/spec.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/spec.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::app {

struct ModelSpec {
  config::Choice architecture;
  std::optional<std::string> pretrained;
  std::vector<std::string> freeze;

  static void describe(config::Description<ModelSpec>& d);
};

/// The band a recipe promises for its final metrics: [low, high], checked at the end.
struct ExpectSpec {
  std::map<std::string, std::vector<double>> bands;  // "val/top1": [low, high]
  std::optional<std::string> source;

  static void describe(config::Description<ExpectSpec>& d);
};

struct JobSpec : JobStart {
  ModelSpec model;
  data::DataSpec data;
  train::TrainSpec train;
  optim::OptimizerSpec optimizer;
  optim::LrSchedulerSpec lr_scheduler;
  train::EvalSpec eval;
  train::LimitsSpec limits;
  train::ParallelSpec parallel;
  train::LogSpec log;
  std::optional<ExpectSpec> expect;

  static void describe(config::Description<JobSpec>& d);
};

}  // namespace gputrain::app
