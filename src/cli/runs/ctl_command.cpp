// Command `gputrain ctl`: gives an order to a run in progress.
#include <cstdio>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/net/server.hpp"
#include "run_state.hpp"

namespace gputrain::app {
namespace {

int show_status(const CtlCommand& command) {
  nlohmann::json state = state_of(command.run);
  if (command.json) {
    state.erase("points");
    std::printf("%s\n", state.dump(2).c_str());
    return 0;
  }
  const nlohmann::json& values = state["values"];
  const auto number = [&](const char* name) { return values.value(name, 0.0); };
  const auto measured = [&](const char* name) {
    const auto found = values.find(name);
    return found != values.end() && found->is_number() ? monitor::significant(found->get<double>()) : "-";
  };
  const auto planned = static_cast<int64_t>(number("planned_steps"));
  monitor::Console console(monitor::Console::detect(true));
  console.show("run", state.value("run_id", "") + "  " + state.value("state", ""));
  console.show("step", grouped(static_cast<int64_t>(number("steps_total"))) +
                           (planned > 0 ? "/" + grouped(planned) : "") + "  loss " + measured("train/loss") + "  lr " +
                           measured("train/lr") + "  attempt " + grouped(static_cast<int64_t>(number("attempt"))));
  for (const auto& alert : state["alerts"]) console.show("alert", alert.get<std::string>());
  return 0;
}

}  // namespace

int ctl_command(const CtlCommand& command) {
  const std::filesystem::path folder = command.run;
  if (!std::filesystem::is_directory(folder))
    throw Error(ExitCode::usage, {.what = "there is no run folder", .where = command.run, .hint = "runs/NAME"});
  if (command.verb == "status") return show_status(command);
  const auto answer = net::ask(folder, {.method = "POST", .url = "/" + command.verb, .body = command.argument});
  if (answer.status != 200) {
    std::string what = answer.body;
    if (what.ends_with('\n')) what.pop_back();
    throw Error(ExitCode::usage, {.what = what, .where = "gputrain ctl"});
  }
  std::printf("%s: the run does it before its next step\n", command.verb.c_str());
  return 0;
}

}  // namespace gputrain::app
