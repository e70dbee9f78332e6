#include "gputrain/monitor/alerts.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "gputrain/config/names.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/measurements.hpp"

namespace gputrain::monitor {
namespace {

bool holds(const AlertSpec& alert, const Board::Range& range) {
  if (alert.op == ">") return range.most > alert.value;
  if (alert.op == ">=") return range.most >= alert.value;
  if (alert.op == "<") return range.least < alert.value;
  return range.least <= alert.value;
}

double value_of(const AlertSpec& alert, const Board::Range& range) {
  return alert.op.starts_with('>') ? range.most : range.least;
}

}  // namespace

void AlertSpec::describe(config::Description<AlertSpec>& d) {
  d.summary("a rule about a measurement of the run");
  d.key("metric", &AlertSpec::metric, "a name in metrics.jsonl, or of the measurements of ranks and GPUs").required();
  d.key("op", &AlertSpec::op, "how it is compared").choices({">", ">=", "<", "<="});
  d.key("value", &AlertSpec::value, "what it is compared with").required();
  d.key("for", &AlertSpec::duration, "fires when it has held for so long").at_least(0);
  d.key("action", &AlertSpec::action, "what follows: a warning, and an order to the run or a program")
      .choices({"warn", "save", "pause", "stop", "exec"});
  d.key("exec", &AlertSpec::exec, "with action: exec, the program and its arguments; no shell reads them")
      .mask_secrets();
  d.check([](const AlertSpec& spec, config::SpecIssues& issues) {
    const auto names = names_of_measurements();
    if (std::ranges::find(names, spec.metric) == names.end())
      issues.add("metric", "'" + spec.metric + "' is not measured", config::did_you_mean(spec.metric, names));
    if ((spec.action == "exec") == spec.exec.empty())
      issues.add("exec", spec.exec.empty() ? "is missing" : "needs action: exec", "action: exec, exec: [notify, me]");
  });
}

std::string text_of(const AlertSpec& alert) {
  std::string text = alert.metric + " " + alert.op + " " + significant(alert.value);
  if (alert.duration.seconds > 0) text += " for " + duration(alert.duration.seconds);
  return text;
}

std::vector<AlertSpec> default_alerts() {
  const auto rule = [](const char* metric, const char* op, double value, double seconds) {
    AlertSpec spec;
    spec.metric = metric;
    spec.op = op;
    spec.value = value;
    spec.duration = config::Duration{seconds};
    return spec;
  };
  return {rule("gpu/temperature_celsius", ">", 85, 60), rule("gpu/lost", ">", 0, 0),
          rule("since_step_seconds", ">", 300, 0),      rule("train/loss_spike", ">", 3, 0),
          rule("train/rate_share", "<", 0.5, 120),      rule("disk/free_share", "<", 0.03, 0)};
}

AlertRules::AlertRules(std::vector<AlertSpec> alerts) {
  for (AlertSpec& alert : alerts) all_.push_back({.alert = std::move(alert)});
}

std::vector<AlertRules::Change> AlertRules::look(const std::map<std::string, Board::Range>& values, double now) {
  std::vector<Change> changes;
  for (Followed& one : all_) {
    const auto found = values.find(one.alert.metric);
    const bool is_there = found != values.end() && !std::isnan(found->second.most);
    if (!is_there || !holds(one.alert, found->second)) {
      one.since = -1;
      const double value = is_there ? value_of(one.alert, found->second) : std::nan("");
      if (std::exchange(one.is_firing, false)) changes.push_back({one.alert, false, value});
      continue;
    }
    if (one.since < 0) one.since = now;
    if (one.is_firing || now - one.since < one.alert.duration.seconds) continue;
    one.is_firing = true;
    changes.push_back({one.alert, true, value_of(one.alert, found->second)});
  }
  return changes;
}

std::vector<std::string> AlertRules::firing() const {
  std::vector<std::string> texts;
  for (const Followed& one : all_)
    if (one.is_firing) texts.push_back(text_of(one.alert));
  return texts;
}

}  // namespace gputrain::monitor
