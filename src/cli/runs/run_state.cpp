#include "run_state.hpp"

#include <filesystem>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/board.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/net/server.hpp"

namespace gputrain::app {
namespace {

const net::Request kState{.url = "/state"};

net::Response answer_of(const std::string& run) {
  if (std::filesystem::is_directory(run)) return net::ask(std::filesystem::path(run), kState);
  const size_t colon = run.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(run.c_str() + colon + 1);
  if (port < 1 || port > 65535 || run.find_first_of("/?#@ ") != run.npos)
    throw Error(ExitCode::usage, {.what = "there is no run folder, and this is no HOST:PORT", .where = run});
  return net::ask(run.substr(0, colon), port, kState);
}

}  // namespace

nlohmann::json state_of_any(const std::string& run) {
  const RunFolder folder{run};
  if (!exists(folder.resolved()) && !std::filesystem::is_directory(run)) return state_of(run);
  try {
    return state_of(run);
  } catch (const Error&) {
    if (!exists(folder.resolved()))
      throw Error(ExitCode::usage, {.what = "this is no run folder, and there is none in it: a run has a "
                                            "job.resolved.yaml",
                                    .where = run});
    const auto end = monitor::newest_end(folder.summary());
    monitor::Board board;
    board.begin({.run_id = end.value("run_id", ""), .name = folder.path.filename().string(), .folder = run});
    board.read_history(folder.metrics());
    board.set_state(end.value("status", "does not answer here"));
    nlohmann::json state = board.json();
    auto& values = state["values"];
    for (const auto& point : state["points"]) values.update(point["metrics"]);
    values.update(nlohmann::json(end.value("metrics", nlohmann::ordered_json::object())));
    values["steps_total"] = end.value("step", int64_t{0});
    values["epoch"] = end.value("epoch", 0.0);
    for (const auto& [name, key] : {std::pair("cost_total", "cost"), {"cost_limit", "cost_limit"}})
      if (end.contains(key)) values[name] = end[key];
    state["has_ended"] = true;
    return state;
  }
}

void refuse_other_server(const std::string& run) {
  throw Error(ExitCode::environment,
              {.what = "what answers there is no run of gputrain",
               .where = run,
               .hint = "the address is on the run's start page, after `watch`; or give its run folder"});
}

nlohmann::json state_of(const std::string& run) {
  const net::Response answer = answer_of(run);
  if (answer.status == 403) throw Error(ExitCode::environment, {.what = answer.body, .where = run});
  auto state = parse_json(answer.body);
  const auto has = [&](const char* key, auto is_type) { return state.contains(key) && (state[key].*is_type)(); };
  using Json = nlohmann::json;
  const bool is_run = state.is_object() && has("run_id", &Json::is_string) && has("values", &Json::is_object) &&
                      has("alerts", &Json::is_array) && has("events", &Json::is_array);
  if (!is_run) refuse_other_server(run);
  return state;
}

}  // namespace gputrain::app
