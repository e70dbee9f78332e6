#include "mlflow_server.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;

constexpr size_t kLongestKey = 250, kLongestValue = 500;  // limits; servers of some versions take more

int64_t now_milliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

/// Replaces characters that MLflow does not take: it allows letters, digits and a few others.
std::string key_of(const std::string& name) {
  std::string key = name.substr(0, kLongestKey);
  std::ranges::replace_if(
      key,
      [](char c) {
        const bool is_sign = std::string_view("_-. :/").find(c) != std::string_view::npos;
        return std::isalnum(static_cast<unsigned char>(c)) == 0 && !is_sign;
      },
      '_');
  return key;
}

/// Cuts a text between characters to the limit.
std::string value_text(const std::string& value) {
  std::string text = printable(value, "\n\t");
  if (text.size() <= kLongestValue) return text;
  size_t end = 0;
  for (size_t next = 0; next <= kLongestValue; next += std::max<size_t>(1, character_length(text, next))) end = next;
  return text.substr(0, end);
}

/// Writes a number; MLflow takes the names of those that JSON does not have.
json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string authorization_of(const MlflowAccess& access) {
  if (!access.user.empty()) return "Basic " + to_base64(access.user + ":" + access.password);
  return access.token.empty() ? std::string() : "Bearer " + access.token;
}

std::string text_at(const json& answer, const char* place) {
  if (auto text = text_if_at(answer, place)) return *text;
  throw Error(ExitCode::environment, {.what = std::string("does not answer as MLflow: there is no ") + place});
}

}  // namespace

MlflowAccess mlflow_access(const MlflowSpec& spec, const Lookup& lookup) {
  MlflowAccess access;
  access.uri = spec.uri.value_or(environment_or(lookup, "MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"));
  if (!is_server_address(access.uri))
    throw Error(ExitCode::usage, {.what = "is no address of an MLflow server: " + without_url_secrets(access.uri),
                                  .where = "MLFLOW_TRACKING_URI",
                                  .hint = "write http:// or https://, for instance http://host:5000"});
  while (access.uri.ends_with('/')) access.uri.pop_back();
  access.experiment = spec.experiment.value_or(environment_or(lookup, "MLFLOW_EXPERIMENT_NAME", "Default"));
  access.person = printable(environment_or(lookup, "LOGNAME", environment_or(lookup, "USER", "unknown")));
  access.token = environment_or(lookup, "MLFLOW_TRACKING_TOKEN", "");
  if (std::ranges::any_of(access.token, [](unsigned char c) { return std::isgraph(c) == 0; }))
    throw Error(ExitCode::usage, {.what = "is no token: it has a space or a control character",
                                  .where = "MLFLOW_TRACKING_TOKEN",
                                  .hint = "give the token alone, on one line"});
  access.user = environment_or(lookup, "MLFLOW_TRACKING_USERNAME", "");
  access.password = environment_or(lookup, "MLFLOW_TRACKING_PASSWORD", "");
  const bool has_password = !access.user.empty() && !access.password.empty();  // wins over a token, as in MLflow itself
  if (has_password)
    access.token.clear();
  else
    access.user.clear();
  return access;
}

MlflowServer::MlflowServer(const MlflowAccess& access)
    : experiment_(access.experiment),
      person_(access.person),
      server_("MLflow", access.uri + "/api/2.0", authorization_of(access)) {}

std::string MlflowServer::experiment() {
  const auto find = [&]() -> std::optional<std::string> {
    const auto found = ask("experiments/get-by-name?experiment_name=" + percent_encoded(experiment_), nullptr);
    return found ? std::optional(text_at(*found, "/experiment/experiment_id")) : std::nullopt;
  };
  if (const auto id = find()) return *id;
  try {
    return text_at(must("experiments/create", {{"name", experiment_}}), "/experiment_id");
  } catch (const Error&) {  // another process may have made it in between
    if (const auto id = find()) return *id;
    throw;
  }
}

std::string MlflowServer::begin_run(const std::string& experiment_id, const std::string& name) {
  const auto tag = [](const char* key, const std::string& value) { return json{{"key", key}, {"value", value}}; };
  const json begun = must(
      "runs/create",
      {{"experiment_id", experiment_id},
       {"run_name", printable(name)},
       {"user_id", person_},
       {"start_time", now_milliseconds()},
       {"tags",
        {tag("mlflow.user", person_), tag("mlflow.source.name", "gputrain"), tag("mlflow.source.type", "LOCAL")}}});
  artifacts_ = text_if_at(begun, "/run/info/artifact_uri").value_or("");
  return text_at(begun, "/run/info/run_id");
}

bool MlflowServer::continue_run(const std::string& run_id) {
  const auto continued = ask("runs/update", {{"run_id", run_id}, {"status", "RUNNING"}});
  if (continued) artifacts_ = text_if_at(*continued, "/run_info/artifact_uri").value_or("");
  return continued.has_value();
}

void MlflowServer::log_params(const std::string& run_id, const std::map<std::string, std::string>& params) {
  json batch = json::array();
  const auto send = [&] {
    if (!batch.empty()) must("runs/log-batch", {{"run_id", run_id}, {"params", std::exchange(batch, json::array())}});
  };
  for (const auto& [key, value] : params) {
    batch.push_back({{"key", key_of(key)}, {"value", value_text(value)}});
    if (batch.size() == kMostParams) send();
  }
  send();
}

void MlflowServer::log_metrics(const std::string& run_id, const std::vector<MlflowMetric>& metrics) {
  json batch = json::array();
  for (const MlflowMetric& metric : metrics)
    batch.push_back({{"key", key_of(metric.key)},
                     {"value", number(metric.value)},
                     {"timestamp", metric.milliseconds},
                     {"step", metric.step}});
  must("runs/log-batch", {{"run_id", run_id}, {"metrics", batch}});
}

bool MlflowServer::log_file(const std::string& path, const std::string& content) {
  constexpr std::string_view kKept = "mlflow-artifacts:/";  // with a host, another server keeps them
  if (!artifacts_.starts_with(kKept) || artifacts_.starts_with("mlflow-artifacts://")) return false;
  const std::string place = "mlflow-artifacts/artifacts/" + artifacts_.substr(kKept.size()) + "/" + path;
  net::Request request{.method = "PUT", .body = content};
  request.headers["Content-Type"] = path.ends_with(".png") ? "image/png" : "text/plain; charset=utf-8";
  if (server_.send(place, std::move(request))) return true;
  server_.fail("answers 404 to a file");
}

void MlflowServer::end_run(const std::string& run_id, const std::string& status) {
  must("runs/update", {{"run_id", run_id}, {"status", status}, {"end_time", now_milliseconds()}});
}

std::optional<json> MlflowServer::ask(const std::string& path, const json& content) {
  return content.is_null() ? server_.send("mlflow/" + path, {}) : server_.post("mlflow/" + path, content);
}

json MlflowServer::must(const std::string& path, const json& content) {
  if (auto answer = ask(path, content)) return *answer;
  server_.fail("answers 404: there is no MLflow server, or the run is not there any more");
}

}  // namespace gputrain::monitor
