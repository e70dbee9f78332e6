#include "gputrain/run/live.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/page.hpp"

namespace gputrain::app {
namespace {

using monitor::HttpAnswer;
using monitor::HttpRequest;

std::vector<std::string> places_of(const std::vector<std::string>& hosts) {
  std::map<std::string, int> next;
  std::vector<std::string> places;
  for (const std::string& host : hosts) places.push_back(host + ":" + std::to_string(next[host]++));
  return places;
}

/// The number in "after=12"; else 0.
int64_t after_in(const std::string& query) {
  constexpr std::string_view kAfter = "after=";
  int64_t number = 0;
  if (query.starts_with(kAfter)) std::from_chars(query.data() + kAfter.size(), query.data() + query.size(), number);
  return number;
}

HttpAnswer answer(const monitor::Board& board, const HttpRequest& request) {
  if (request.method != "GET") return {.status = 405, .body = "only GET\n"};
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(monitor::page_template())};
  if (request.path == "/metrics")
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = board.prometheus()};
  if (request.path == "/state") return {.type = "application/json", .body = board.json(after_in(request.query)).dump()};
  return {.status = 404, .body = "there are /, /metrics and /state\n"};
}

}  // namespace

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
                .planned_steps = setup.plan.is_time_limited() ? 0 : setup.plan.total_steps,
                .has_gpus = setup.context.device.is_cuda()});
}

Live::~Live() {
  if (!socket_) return;
  socket_.reset();
  std::error_code left;
  std::filesystem::remove(folder_.control(), left);
}

void Live::begin(const train::Progress& progress) {
  board_.set("attempt", static_cast<double>(progress.attempts));
  if (!is_writer_) return;
  board_.read_history(folder_.metrics());
  serve_socket();
  if (job_.spec().log.metrics_port) serve_port();
  board_.set_state("training");
  auto rules = monitor::default_alerts();
  rules.insert(rules.end(), job_.spec().alerts.begin(), job_.spec().alerts.end());
  alerts_ = std::make_unique<AlertWatch>(std::move(rules), board_, control_, folder_.path);
}

monitor::Metrics Live::readings() const {
  monitor::Metrics all;
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

void Live::write_report(const monitor::Summary& summary) {
  if (!is_writer_) return;
  auto state = board_.json();
  state["state"] = summary.status;
  const auto add_tile = [&](const char* name, const std::string& text) {
    state["tiles"].push_back(nlohmann::ordered_json::array({name, text}));
  };
  add_tile("wall time", monitor::duration(summary.wall_seconds));
  add_tile("memory", monitor::bytes(static_cast<double>(summary.peak_memory_bytes)));
  add_tile("exit code", std::to_string(summary.exit_code));
  try {
    write_file_atomically(folder_.report(), monitor::report_page(state), ExitCode::environment);
  } catch (const Error& failure) {
    log::warning("report.html: " + failure.parts().what);
  }
}

void Live::serve_port() {
  const auto& log = job_.spec().log;
  try {
    auto listener = monitor::listen_on(log.metrics_host, static_cast<int>(*log.metrics_port));
    port_ = std::make_unique<monitor::HttpServer>(
        std::move(listener), [this](const HttpRequest& request) { return answer(board_, request); });
  } catch (const Error& failure) {
    log::warning("log.metrics_port: " + failure.parts().what + "; the run goes on without it");
  }
}

void Live::serve_socket() {
  try {
    socket_ = std::make_unique<monitor::HttpServer>(
        monitor::listen_at(folder_.control()), [this](const HttpRequest& request) -> HttpAnswer {
          if (request.method != "POST") return answer(board_, request);
          const std::string refusal = control_.order(request.path.substr(1), request.body);
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
