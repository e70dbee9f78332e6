#include "gputrain/monitor/log_spec.hpp"

#include <algorithm>
#include <memory>

#include "gputrain/monitor/sink.hpp"
#include "trackers/json_server.hpp"

namespace gputrain::monitor {

using config::Change;

namespace {

/// Returns our sinks for `report_to: wandb`; empty: none.
std::string sinks_for(const std::string& tracker) {
  const bool is_tracker = tracker == "tensorboard" || tracker == "mlflow" || tracker == "wandb";
  return is_tracker ? "[jsonl, console, " + tracker + "]" : "";
}

template <class Spec>
void pick(std::vector<config::Choice>& chosen, const std::string& name, const std::optional<Spec>& spec) {
  if (!spec) return;
  const auto found = std::ranges::find(chosen, name, &config::Choice::name);
  const config::Choice choice{name, std::make_shared<const Spec>(*spec)};
  found == chosen.end() ? chosen.push_back(choice) : void(*found = choice);
}

}  // namespace

void MlflowSpec::describe(config::Description<MlflowSpec>& d) {
  d.summary("an MLflow server");
  d.key("uri", &MlflowSpec::uri,
        "its address; else that in MLFLOW_TRACKING_URI, else http://127.0.0.1:5000. Who needs a token or a password "
        "sets "
        "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
      .aliases({"tracking_uri"});
  d.key("experiment", &MlflowSpec::experiment,
        "the experiment, which is made if there is none; else that in MLFLOW_EXPERIMENT_NAME, else Default")
      .aliases({"experiment_name"});
  d.key("run_name", &MlflowSpec::run_name, "the name that the run has there; else its id");
  d.check([](const MlflowSpec& spec, config::SpecIssues& issues) {
    if (spec.uri && !is_server_address(*spec.uri))
      issues.add("uri", "is no address of an MLflow server",
                 "write http:// or https://, for instance http://host:5000");
  });
}

void WandbSpec::describe(config::Description<WandbSpec>& d) {
  d.summary("a run of Weights & Biases");
  d.key(
       "mode", &WandbSpec::mode,
       "online: the run is shown on the server while it goes on, by the key in WANDB_API_KEY or that of `wandb login`; "
       "offline: only the folder for `wandb sync` is written; auto: what WANDB_MODE says (online, offline, disabled), "
       "else online if there is a key")
      .choices({"auto", "online", "offline"});
  d.key("project", &WandbSpec::project, "the project; else that in WANDB_PROJECT, else uncategorized");
  d.key("entity", &WandbSpec::entity, "the user or team; else that in WANDB_ENTITY, else that of whose key it is");
  d.key("name", &WandbSpec::name, "the name that the run has there; else its id");
}

std::vector<config::Choice> LogSpec::chosen_sinks() const {
  std::vector<config::Choice> chosen;
  for (const std::string& name : sinks) chosen.push_back(monitor::sinks().with_defaults(name));
  pick(chosen, "tensorboard", tensorboard ? std::optional(config::NoOptions()) : std::nullopt);
  pick(chosen, "mlflow", mlflow);
  pick(chosen, "wandb", wandb);
  return chosen;
}

void LogSpec::describe(config::Description<LogSpec>& d) {
  d.summary("console and metrics");
  d.key("interval", &LogSpec::interval,
        "time between log lines; auto: every 50 steps, or a tenth of a run of fewer than 500 steps")
      .above(0)
      .change(Change::safe)
      .aliases({"logging_steps", "log_interval", "log_every_n_steps", "log_every", "log_freq", "print_freq"});
  d.key("sinks", &LogSpec::sinks,
        "where log lines, evaluations and events go, in this order; " + monitor::sinks().entries_in_words())
      .choices(monitor::sinks().names())
      .change(Change::safe)
      .aliases("report_to", sinks_for)
      .aliases("logger", sinks_for)
      .aliases("loggers", sinks_for);
  d.key("tensorboard", &LogSpec::tensorboard, "event files for TensorBoard in tb/ of the run folder")
      .change(Change::safe);
  d.key("mlflow", &LogSpec::mlflow, "curves and settings go to an MLflow server; `{}` is enough").change(Change::safe);
  d.key("wandb", &LogSpec::wandb,
        "a run of Weights & Biases, live where there is a key, and always a folder for `wandb sync` in wandb/ of the "
        "run "
        "folder; `{}` is enough")
      .change(Change::safe);
  d.key(
       "pictures", &LogSpec::pictures,
       "TensorBoard and MLflow, not Weights & Biases, get a picture of the worst samples of each evaluation on images; "
       "false: numbers and texts alone")
      .change(Change::safe);
  d.key("metrics_port", &LogSpec::metrics_port,
        "port where rank 0 serves the run's measurements: /metrics for Prometheus; 0: a free one; null: none")
      .range(0, 65535)
      .change(Change::safe);
  d.key("metrics_host", &LogSpec::metrics_host,
        "address where it listens; 0.0.0.0: all of this host, so that anyone in its networks can read")
      .change(Change::safe);
  d.key("webhook", &LogSpec::webhook,
        "address that gets alerts and the end of the run as {\"text\": ...}, of Slack for instance; ${env:NAME} keeps "
        "it "
        "out of the job")
      .mask_secrets()
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
