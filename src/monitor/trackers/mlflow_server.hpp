// Client of an MLflow server over its REST interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/core/process.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "json_server.hpp"

namespace gputrain::monitor {

/// Address of an MLflow server, and the user.
struct MlflowAccess {
  std::string uri, experiment, person;
  std::string token = {}, user = {}, password = {};
};

/// Completes the job's options by the variables that MLflow reads. Throws Error(usage) for an invalid address.
MlflowAccess mlflow_access(const MlflowSpec& spec, const Lookup& lookup);

struct MlflowMetric {
  std::string key;
  double value = 0;
  int64_t milliseconds = 0;  // since 1970
  int64_t step = 0;
};

/// Client, as JsonServer.
class MlflowServer {
 public:
  static constexpr size_t kMostMetrics = 1000, kMostParams = 100;  // limits for one request

  explicit MlflowServer(const MlflowAccess& access);

  /// Returns the id of the experiment, which is made if there is none.
  std::string experiment();
  /// Begins a run and returns its id. What follows is about this run.
  std::string begin_run(const std::string& experiment_id, const std::string& name);
  /// Marks a run as running again. Returns false if the server does not have it.
  bool continue_run(const std::string& run_id);
  void log_params(const std::string& run_id, const std::map<std::string, std::string>& params);
  void log_metrics(const std::string& run_id, const std::vector<MlflowMetric>& metrics);
  /// Writes a file of the run: a PNG file by its name, or else a text. Returns false if the server keeps no files: they
  /// are in a store that programs write to themselves.
  bool log_file(const std::string& path, const std::string& content);
  /// Ends a run with `status`: FINISHED, FAILED or KILLED.
  void end_run(const std::string& run_id, const std::string& status);

  /// Limits the seconds of each further call.
  void hurry(std::chrono::seconds most) { server_.hurry(most); }

 private:
  /// Returns the answer; nullopt for 404. `content` null: sends GET.
  std::optional<nlohmann::json> ask(const std::string& path, const nlohmann::json& content);
  nlohmann::json must(const std::string& path, const nlohmann::json& content);

  std::string experiment_, person_;
  JsonServer server_;
  std::string artifacts_;  // address of the run's files
};

}  // namespace gputrain::monitor
