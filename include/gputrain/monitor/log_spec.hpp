// Section `log` of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::monitor {

/// MLflow server. Missing options come from the variables that MLflow reads.
struct MlflowSpec {
  std::optional<std::string> uri, experiment, run_name;

  static void describe(config::Description<MlflowSpec>& d);
};

/// Run of Weights & Biases. Missing options come from the variables that `wandb` reads.
struct WandbSpec {
  std::string mode = "auto";
  std::optional<std::string> project, entity, name;

  static void describe(config::Description<WandbSpec>& d);
};

struct LogSpec {
  config::Auto<config::Length> interval;
  std::vector<std::string> sinks = {"jsonl", "console"};
  std::optional<int64_t> metrics_port;
  std::string metrics_host = "127.0.0.1";
  std::optional<std::string> webhook;
  bool tensorboard = false;
  std::optional<MlflowSpec> mlflow;
  std::optional<WandbSpec> wandb;
  bool pictures = true;

  /// Returns the sinks in `sinks`, then those with a key of their own, each once.
  std::vector<config::Choice> chosen_sinks() const;

  static void describe(config::Description<LogSpec>& d);
};

}  // namespace gputrain::monitor
