#include "gputrain/monitor/log_spec.hpp"

#include <algorithm>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

using config::Change;

void LogSpec::describe(config::Description<LogSpec>& d) {
  d.summary("console and metrics");
  d.key("interval", &LogSpec::interval, "time between log lines")
      .above(0)
      .change(Change::safe)
      .aliases({"logging_steps", "log_interval", "log_every_n_steps", "log_every", "log_freq", "print_freq"});
  d.key("sinks", &LogSpec::sinks,
        "where log lines, evaluations and events go, in this order; " + monitor::sinks().entries_in_words())
      .choices(monitor::sinks().names())
      .change(Change::safe);
  d.key("metrics_port", &LogSpec::metrics_port,
        "port where rank 0 serves the run's measurements: /metrics for Prometheus; 0: a free one; null: none")
      .range(0, 65535)
      .change(Change::safe);
  d.key("metrics_host", &LogSpec::metrics_host,
        "address where it listens; 0.0.0.0: all of this host, so that anyone in its networks can read")
      .change(Change::safe);
  d.check([](const LogSpec& spec, config::SpecIssues& issues) {
    for (const std::string& name : spec.sinks) {
      if (std::ranges::count(spec.sinks, name) == 1) continue;
      issues.add("sinks", "names " + name + " more than once", "name each sink once");
      break;
    }
  });
}

}  // namespace gputrain::monitor
