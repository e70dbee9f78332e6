// `gputrain replay`: repeats a step of a run from the checkpoint before it and compares it with the record. Writes
// nothing.
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/replay.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

std::string number(std::optional<double> value) { return value ? fmt::format("{}", *value) : "not finite"; }

void print(const ReplayRequest& request, const ReplayReport& report) {
  std::string text = fmt::format("replay   step {} of {}, from the checkpoint of step {}: {} in {}\n",
                                 grouped(request.step), request.run, grouped(report.from),
                                 counted(request.step - report.from, "step"), monitor::duration(report.seconds));
  for (const auto& note : report.notes) text += "note     " + note + "\n";
  if (!report.metrics.empty()) {
    const ReplayReport::Metric& first = report.metrics.front();
    text += fmt::format("metrics  differ, first at step {}: {} was {}, is now {}\n", grouped(first.step), first.metric,
                        number(first.recorded), number(first.replayed));
  } else if (report.steps.empty()) {
    text += "metrics  none was recorded of these steps\n";
  } else {
    const auto count = static_cast<int64_t>(report.steps.size());
    text += fmt::format("metrics  equal at {}, the last one {}: loss {} gnorm {}\n", counted(count, "recorded step"),
                        grouped(report.steps.back()), number(report.last.at("train/loss")),
                        number(report.last.at("train/grad_norm")));
  }
  if (!report.has_weights) {
    text += fmt::format("weights  there is no checkpoint of step {} to compare with\n", grouped(request.step));
  } else if (report.tensors_differing.empty()) {
    text += fmt::format("weights  equal: {} of model and optimizer\n", counted(report.tensors, "tensor"));
  } else {
    const ReplayReport::Tensor& first = report.tensors_differing.front();
    text += fmt::format("weights  differ in {} of {}, first {} {}: {}, by up to {}\n", report.tensors_differing.size(),
                        counted(report.tensors, "tensor"), first.file, first.name,
                        counted(first.difference.differing, "element"),
                        monitor::significant(first.difference.largest_absolute));
  }
  std::printf("%s%s\n", text.c_str(), report.is_equal() ? "equal" : "NOT equal");
}

nlohmann::json json_of(const ReplayRequest& request, const ReplayReport& report) {
  const auto value = [](std::optional<double> given) {
    return given ? nlohmann::json(*given) : nlohmann::json(nullptr);
  };
  auto metrics = nlohmann::json::array(), tensors = nlohmann::json::array();
  for (const auto& each : report.metrics) {
    metrics.push_back({{"step", each.step},
                       {"metric", each.metric},
                       {"recorded", value(each.recorded)},
                       {"replayed", value(each.replayed)}});
  }
  for (const auto& each : report.tensors_differing) {
    tensors.push_back({{"file", each.file},
                       {"name", each.name},
                       {"elements", each.difference.elements},
                       {"differing", each.difference.differing},
                       {"largest_absolute", each.difference.largest_absolute}});
  }
  return {{"equal", report.is_equal()},
          {"step", request.step},
          {"from", report.from},
          {"steps_compared", report.steps},
          {"metrics_differing", std::move(metrics)},
          {"tensors_compared", report.tensors},
          {"tensors_differing", std::move(tensors)},
          {"notes", report.notes},
          {"seconds", report.seconds}};
}

}  // namespace

int replay_command(const ReplayRequest& request) {
  const ReplayReport report = replay(request.run, request.step);
  if (report.rank == 0 && request.json) {
    std::printf("%s\n", json_of(request, report).dump(2).c_str());
  } else if (report.rank == 0) {
    print(request, report);
  }
  return static_cast<int>(report.is_equal() ? ExitCode::done : ExitCode::refused);
}

}  // namespace gputrain::app
