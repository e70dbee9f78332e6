#include "gputrain/run/live.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/newest_lines.hpp"
#include "gputrain/monitor/page.hpp"
#include "gputrain/monitor/webhook.hpp"
#include "gputrain/run/report.hpp"

namespace gputrain::app {
namespace {

using net::Request;
using net::Response;

std::vector<std::string> places_of(const std::vector<std::string>& hosts) {
  std::map<std::string, int> next;
  std::vector<std::string> places;
  for (const std::string& host : hosts) places.push_back(host + ":" + std::to_string(next[host]++));
  return places;
}

/// Returns the number in "after=12"; else 0.
int64_t after_in(const std::string& query) {
  constexpr std::string_view kAfter = "after=";
  int64_t number = 0;
  if (query.starts_with(kAfter)) std::from_chars(query.data() + kAfter.size(), query.data() + query.size(), number);
  return number;
}

/// Returns the rule of limits.idle.
std::vector<monitor::AlertSpec> rules_of(const train::LimitsSpec& limits) {
  std::vector<monitor::AlertSpec> rules;
  if (limits.idle)
    rules.push_back({.metric = "gpu/most_utilization_ratio",
                     .op = "<",
                     .value = limits.idle->min_gpu_utilization / 100,
                     .duration = limits.idle->time_window,
                     .action = train::kEnd});
  return rules;
}

std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Response page(const char* type, std::string text) {
  return {.headers = {{"Content-Type", type}}, .body = std::move(text)};
}

}  // namespace

Response Live::answer(const Request& request) const {
  if (request.method != "GET" && request.method != "HEAD") return {.status = 405, .body = "only GET and HEAD\n"};
  const std::string path = request.path();
  if (path == "/") return page("text/html; charset=utf-8", monitor::live_page());
  if (path == "/metrics") return page("text/plain; version=0.0.4; charset=utf-8", board_.prometheus());
  if (path == "/state") {
    const int64_t after = after_in(request.query());
    auto state = board_.json(after);
    if (after == 0) state["settings"] = settings_for_page(job_);
    return page("application/json", text_of(state));
  }
  if (path == "/evaluation") return page("application/json", text_of(evaluation_in(folder_)));
  if (path == "/log") return {.body = monitor::newest_lines(folder_.log(0), kShownLog)};
  return {.status = 404, .body = "there are /, /metrics, /state, /evaluation and /log\n"};
}

Live::Live(const Job& job, TrainingSetup& setup, const RunFolder& folder)
    : job_(job),
      folder_(folder),
      device_(setup.context.device),
      is_writer_(setup.context.rank() == 0),
      local_rank_(static_cast<size_t>(setup.context.launch.rendezvous.local_rank)),
      places_(places_of(setup.context.groups.hosts())),
      clock_(setup.context.device) {
  const std::string uuid = device::facts_of(device_).uuid;
  if (device_.is_cuda())
    gpus_ = std::make_unique<device::GpuSampler>(device::GpuSampler::Options{.gpus = {uuid}});
  else if (std::getenv("GPUTRAIN_NVML") != nullptr)  // a library of another make: a test's, for instance
    gpus_ = std::make_unique<device::GpuSampler>(device::GpuSampler::Options{.interval_seconds = 1});
  board_.begin({.run_id = job.run_id,
                .name = job.name,
                .folder = folder.path.string(),
                .places = places_,
                .planned_steps = setup.plan.is_time_limited() ? 0 : setup.plan.total_steps});
}

void Live::begin(const train::Progress& progress, double earlier_seconds, const train::Reporting& reporting) {
  board_.set("attempt", static_cast<double>(progress.attempts));
  if (!is_writer_) return;
  board_.read_history(folder_.metrics());
  board_.read_history(folder_.samples());
  serve_socket();
  if (job_.spec().log.metrics_port) serve_port();
  board_.set_state("training");
  auto rules = monitor::default_alerts();
  rules.insert(rules.end(), job_.spec().alerts.begin(), job_.spec().alerts.end());
  if (const auto& url = job_.spec().log.webhook) webhook_ = monitor::webhook_sink(*url, job_.name);
  const auto limits = rules_of(job_.spec().limits);
  rules.insert(rules.end(), limits.begin(), limits.end());
  const double price = job_.spec().limits.price_per_hour.value_or(0);
  if (const auto& most = job_.spec().limits.max_cost) board_.set("cost_limit", *most);
  alerts_ = std::make_unique<AlertWatch>(
      AlertWatch::Parts{.alerts = std::move(rules),
                        .board = board_,
                        .control = control_,
                        .reporting = reporting,
                        .folder = folder_.path,
                        .cost = {.per_second = price / 3600, .earlier_seconds = earlier_seconds},
                        .first_step = progress.step,
                        .webhook = webhook_.get()});
}

monitor::Metrics Live::readings() {
  monitor::Metrics all;
  all["host/cpu_ratio"] = load_.cpu_ratio();
  all["host/memory_used_bytes"] = static_cast<double>(device::HostLoad::memory_used_bytes());
  all["host/memory_total_bytes"] = static_cast<double>(device::host_memory_bytes());
  all["rank/memory_bytes"] =
      static_cast<double>(device_.is_cpu() ? device::resident_bytes() : device::peak_allocated_bytes(device_));
  if (!gpus_) return all;
  const auto gpus = gpus_->latest().gpus;
  const size_t own = device_.is_cuda() ? 0 : local_rank_;
  const device::GpuReading gpu = own < gpus.size() ? gpus[own] : device::GpuReading{};
  const auto number = [](const auto& value) { return value ? static_cast<double>(*value) : std::nan(""); };
  all["gpu/lost"] = gpu.lost ? 1 : 0;
  all["gpu/utilization_ratio"] = number(gpu.utilization);
  all["gpu/memory_used_bytes"] = number(gpu.memory_used_bytes);
  all["gpu/memory_total_bytes"] = number(gpu.memory_total_bytes);
  all["gpu/temperature_celsius"] = number(gpu.temperature_celsius);
  all["gpu/power_watts"] = number(gpu.power_watts);
  all["gpu/power_limit_watts"] = number(gpu.power_limit_watts);
  all["gpu/energy_joules_total"] = number(gpu.energy_joules);
  all["gpu/sm_clock_hertz"] = number(gpu.sm_clock_hertz);
  all["gpu/memory_clock_hertz"] = number(gpu.memory_clock_hertz);
  all["gpu/throttled"] = gpu.throttle_reasons.empty() ? 0 : 1;
  all["gpu/ecc_uncorrected_total"] = number(gpu.ecc_uncorrected);
  all["gpu/xid"] = static_cast<double>(gpu.latest_xid.value_or(0));
  return all;
}

void Live::note_times(const train::Progress& progress) {
  board_.set("time/train_seconds_total", progress.train_seconds);
  board_.set("time/eval_seconds_total", progress.eval_seconds);
  board_.set("time/save_seconds_total", progress.save_seconds);
}

void Live::end(const monitor::Summary& summary) {
  if (!is_writer_) return;
  if (webhook_) {
    webhook_->log({.label = summary.status,
                   .text = "after step " + std::to_string(summary.step) + ", exit code " +
                           std::to_string(summary.exit_code) + "  " + summary.reason});
    alerts_.reset();
    webhook_->close();
    webhook_.reset();
  }
  if (summary.cost) board_.set("cost_total", *summary.cost);
  auto state = board_.json();
  state["settings"] = settings_for_page(job_);
  write_report(folder_, std::move(state), summary);
}

void Live::serve_port() {
  const auto& log = job_.spec().log;
  try {
    auto listener = net::listen_on(log.metrics_host, static_cast<int>(*log.metrics_port));
    const bool is_local = comm::is_loopback(log.metrics_host);
    port_ = std::make_unique<net::Server>(std::move(listener), [this, is_local](const Request& request) {
      if (is_local && !net::is_local_host(request.headers.get("Host")))
        return Response{.status = 403,
                        .body = "this page answers under localhost and numeric addresses, not under '" +
                                request.headers.get("Host") + "'; log.metrics_host: 0.0.0.0 opens it\n"};
      return answer(request);
    });
  } catch (const Error& failure) {
    log::warning("log.metrics_port: " + failure.parts().what + "; the run goes on without it");
  }
}

void Live::serve_socket() {
  try {
    socket_ = std::make_unique<net::Server>(net::listen_for(folder_.path), [this](const Request& request) -> Response {
      if (request.method != "POST") return answer(request);
      const std::string refusal = control_.order(request.path().substr(1), request.body);
      return {.status = refusal.empty() ? 200 : 400, .body = refusal};
    });
  } catch (const Error& failure) {
    log::warning("`gputrain ctl` cannot reach this run: " + failure.parts().what);
  }
}

std::string Live::text() const {
  if (!port_) return {};
  const std::string& host = job_.spec().log.metrics_host;
  return "http://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
         std::to_string(port_->port()) + "/  for Prometheus /metrics";
}

}  // namespace gputrain::app
