// The whole job: every room describes its section, this file puts them together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/data/spec.hpp"
#include "gputrain/launch/hosts.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/spec.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::app {

struct ModelSpec {
  config::Choice architecture;
  std::optional<std::string> pretrained;

  static void describe(config::Description<ModelSpec>& d);
};

/// The band a recipe promises for its final metrics: [low, high], checked at the end.
struct ExpectSpec {
  std::map<std::string, std::vector<double>> bands;  // "val/top1": [low, high]
  std::optional<std::string> source;

  static void describe(config::Description<ExpectSpec>& d);
};

struct JobSpec {
  int64_t schema = 1;
  std::optional<std::string> name;
  int64_t seed = 1337;
  bool deterministic = false;
  std::optional<std::string> output_dir;
  std::string device = "auto";
  std::optional<std::string> alloc_conf;
  std::string precision = "fp32";
  ModelSpec model;
  data::DataSpec data;
  train::TrainSpec train;
  optim::OptimizerSpec optimizer;
  optim::LrSchedulerSpec lr_scheduler;
  train::EvalSpec eval;
  train::CheckpointSpec checkpoint;
  train::LimitsSpec limits;
  train::ParallelSpec parallel;
  launch::LaunchSpec launch;
  train::LogSpec log;
  std::map<std::string, std::string> env;
  std::optional<ExpectSpec> expect;

  static void describe(config::Description<JobSpec>& d);
};

}  // namespace gputrain::app
