// Asks an MLflow server over its REST interface.
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
#include "gputrain/net/client.hpp"

namespace gputrain::monitor {

bool is_server_address(const std::string& uri);

/// Where an MLflow server is, and who asks.
struct MlflowAccess {
  std::string uri, experiment, person;
  std::string token = {}, user = {}, password = {};
};

/// What the job says, completed by the variables that MLflow reads. Throws Error(usage) for an address that is none.
MlflowAccess mlflow_access(const MlflowSpec& spec, const Lookup& lookup);

struct MlflowMetric {
  std::string key;
  double value = 0;
  int64_t milliseconds = 0;  // since 1970
  int64_t step = 0;
};

/// Each call throws net::Interruption if it may succeed later, and Error(environment) if the server refuses it. A call
/// takes ten seconds at most. No message holds a secret.
class MlflowServer {
 public:
  static constexpr size_t kMostMetrics = 1000, kMostParams = 100;  // in one request

  explicit MlflowServer(MlflowAccess access) : access_(std::move(access)) {}

  /// The id of the experiment, which is made if there is none.
  std::string experiment();
  /// Begins a run and returns its id.
  std::string begin_run(const std::string& experiment_id, const std::string& name);
  /// Marks a run as running again. False if the server does not have it.
  bool continue_run(const std::string& run_id);
  void log_params(const std::string& run_id, const std::map<std::string, std::string>& params);
  void log_metrics(const std::string& run_id, const std::vector<MlflowMetric>& metrics);
  /// `status`: FINISHED, FAILED or KILLED.
  void end_run(const std::string& run_id, const std::string& status);

  /// From now on a call takes `seconds` at most.
  void hurry(std::chrono::seconds most) { most_ = most; }

 private:
  /// The answer; nullopt for 404. `content` null: asks by GET.
  std::optional<nlohmann::json> ask(const std::string& path, const nlohmann::json& content);
  nlohmann::json must(const std::string& path, const nlohmann::json& content);

  MlflowAccess access_;
  net::Client client_;
  std::chrono::seconds most_{10};
};

}  // namespace gputrain::monitor
