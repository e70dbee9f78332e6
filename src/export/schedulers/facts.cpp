// What files for schedulers say about a job, and what a job must say for it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/export/scheduler_files.hpp"
#include "gputrain/hub/cache.hpp"
#include "text.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsBeyondGrace = 30;  // in which the launcher ends what is left

[[noreturn]] void refuse(std::string what, std::string where, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .where = std::move(where), .hint = std::move(hint)});
}

std::string label_of(const std::string& name) {
  constexpr size_t kLongest = 40;
  std::string label;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte) != 0)
      label += static_cast<char>(std::tolower(byte));
    else if (!label.empty() && label.back() != '-')
      label += '-';
  }
  if (label.size() < 2 || std::isalpha(static_cast<unsigned char>(label.front())) == 0) label = "job-" + label;
  label.resize(std::min(label.size(), kLongest));
  while (label.ends_with('-')) label.pop_back();
  return label;
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

/// Adds the variables in ${env:NAME} and ${env:NAME:-default}. Lines that are comments as a whole do not count.
void add_references(std::string_view text, std::vector<JobVariable>& variables) {
  constexpr std::string_view kBegin = "${env:";
  constexpr std::string_view kNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  for (size_t at = 0; (at = text.find(kBegin, at)) != std::string_view::npos;) {
    const size_t line = text.rfind('\n', at) + 1;  // 0 in the first line: npos + 1
    const bool is_comment = text[std::min(text.find_first_not_of(" \t", line), at)] == '#';
    const bool is_escaped = at > 0 && text[at - 1] == '$';
    at += kBegin.size();
    const size_t end = std::min(text.find_first_not_of(kNames, at), text.size());
    const std::string name(text.substr(at, end - at));
    const bool is_known = std::ranges::any_of(variables, [&](const auto& one) { return one.name == name; });
    if (is_comment || is_escaped || is_known || name.empty()) continue;
    variables.push_back(
        {.name = name, .is_secret = is_secret_name(name), .is_needed = !text.substr(end).starts_with(":-")});
  }
}

std::vector<JobVariable> variables_of(const JobSpec& spec, const JobFacts& facts) {
  std::vector<JobVariable> variables;
  add_references(facts.text, variables);
  for (const std::string& setting : facts.set) add_references(setting, variables);
  const auto add = [&](const std::string& name, bool is_needed) {
    const auto known = std::ranges::find(variables, name, &JobVariable::name);
    if (known == variables.end())
      variables.push_back({.name = name, .is_secret = is_secret_name(name), .is_needed = is_needed});
  };
  for (const config::Choice& sink : spec.log.chosen_sinks()) {
    if (sink.name == "wandb") {
      const std::string mode = spec.log.wandb ? spec.log.wandb->mode : "auto";
      if (mode == "auto" || mode == "online") add("WANDB_API_KEY", mode == "online");
    }
    if (sink.name == "mlflow") {
      if (!spec.log.mlflow || !spec.log.mlflow->uri) add("MLFLOW_TRACKING_URI", true);
      for (const char* name : {"MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"})
        add(name, false);
    }
  }
  if (!facts.fetched.empty()) add("HF_TOKEN", false);
  return variables;
}

std::vector<JobPath> paths_of(const JobSpec& spec, bool is_fetched) {
  std::vector<JobPath> paths{{"data.train.path", spec.data.train.path}};
  if (spec.data.val) paths.push_back({"data.val.path", spec.data.val->path.value_or("")});
  if (spec.data.test) paths.push_back({"data.test.path", spec.data.test->path.value_or("")});
  if (!is_fetched) paths.push_back({"model.pretrained", spec.model.pretrained.value_or("")});
  paths.push_back({"checkpoint.mirror", spec.checkpoint.mirror.value_or("")});
  for (const std::string& plugin : spec.plugins) paths.push_back({"plugins", plugin});
  std::erase_if(paths, [](const JobPath& path) { return path.path.empty(); });
  return paths;
}

/// Reads how many nodes there are, and what each of them has.
void read_nodes(const JobSpec& spec, const std::string& file, JobFacts& facts) {
  for (const auto& [key, is_set] : {std::pair("launch.hosts", spec.launch.hosts.has_value()),
                                    std::pair("launch.hostfile", spec.launch.hostfile.has_value())})
    if (is_set)
      refuse(std::string(key) + " names hosts, but a scheduler chooses them", file,
             std::string("--set ") + key + "=null, and launch.nnodes for their number");
  facts.nodes = launch::read_host_count(spec.launch.nnodes.value_or("1")).value_or(launch::HostCount{}).most;
  const auto& ranks = spec.launch.nproc_per_node.value;
  if (!ranks && spec.device != "cpu")
    refuse("the number of GPUs of a node is not given: launch.nproc_per_node is auto", file,
           "--set launch.nproc_per_node=8 for 8 GPUs, or --set device=cpu for none");
  facts.ranks = ranks.value_or(1);
  facts.gpus = spec.device == "cpu" ? 0 : facts.ranks;
}

std::vector<Volume> volumes_of(const std::vector<std::string>& given) {
  std::vector<Volume> volumes;
  for (const std::string& text : given) {
    const size_t colon = text.rfind(":/");
    if (colon == 0 || colon == std::string::npos)
      refuse("a volume is NAME:/path", "--volume " + text,
             "what the scheduler calls it, and its place in the container: --volume data:/data");
    volumes.push_back({.name = text.substr(0, colon), .path = path_in_container({}, text.substr(colon + 1))});
  }
  return volumes;
}

/// Throws Error(usage) for options that the format does not use, and for those that it cannot do without.
void check_options(const SchedulerRequest& request, const SchedulerAbilities& can) {
  const std::string format = "--format " + request.format;
  if (!can.has_containers) {
    for (const auto& [option, is_given] :
         {std::pair("--image", !request.image.empty()), std::pair("--volume", !request.volumes.empty())})
      if (is_given) refuse(std::string(option) + " is for formats with containers", format, "leave it out");
  } else if (request.image.empty()) {
    refuse("the image of the containers is not given", format,
           "--image NAME: that of docker/Dockerfile, where the nodes can pull it");
  }
}

/// Returns whether a job as it is written down has a secret that did not come from a variable.
bool has_plain_secret(const std::string& resolved) {
  std::istringstream lines(resolved);
  for (std::string line; std::getline(lines, line);) {
    const bool is_url = line.find("://") != std::string::npos && line.find("***") != std::string::npos;
    if (line.ends_with("\"***\"") || (is_url && line.find(":-***") == std::string::npos)) return true;
  }
  return false;
}

/// Returns whether the job has values of another file.
bool has_includes(std::string_view text) {
  constexpr std::string_view kKey = "include:";
  return text.starts_with(kKey) || text.find("\n" + std::string(kKey)) != std::string_view::npos;
}

void check_job(const Job& job, const SchedulerRequest& request, const SchedulerAbilities& can, const JobFacts& facts) {
  const std::string& file = request.job.file;
  if (!can.has_nodes && facts.nodes > 1)
    refuse(fmt::format("{} starts one machine, and launch.nnodes is {}", request.format, facts.nodes), file,
           "another --format, or --set launch.nnodes=1");
  if (can.copies_job && has_includes(facts.text))
    refuse("the job has values of other files, which would not be copied with it", file,
           "gputrain config " + file + " > whole.yaml writes it as one");
  if ((can.copies_job || !facts.set.empty()) && has_plain_secret(job.loaded.resolved_yaml()))
    refuse("the job has a secret in plain text, which would stand in the file", file,
           "write ${env:NAME} for it (`gputrain config` shows which: ***)");
  if (can.has_containers && !is_in_volume(facts, job.output_dir))
    refuse("the run folder is in none of the volumes, and a container that starts again would not find it",
           path_in_container(facts, job.output_dir.string()),
           "--volume NAME:/work for one that all nodes share, and --set output_dir=/work/runs/NAME");
}

/// Throws Error(usage) for text that a line of a file cannot hold.
void check_texts(const JobFacts& facts) {
  std::vector<std::string> texts{facts.file, facts.image};
  texts.insert(texts.end(), facts.set.begin(), facts.set.end());
  for (const auto& [name, path] : facts.volumes) texts.insert(texts.end(), {name, path});
  for (const std::string& text : texts)
    if (printable(text) != text)
      refuse("has a character that a line of the file cannot hold", printable(text), "write it into the job");
}

}  // namespace

JobFacts job_facts(const Job& job, const SchedulerRequest& request) {
  const SchedulerAbilities can = schedulers().abilities({.name = request.format, .options = {}});
  check_options(request, can);
  const JobSpec& spec = job.spec();
  JobFacts facts{.label = label_of(job.name),
                 .file = fs::absolute(request.job.file).lexically_normal().string(),
                 .text = content_of(request.job.file),
                 .set = request.job.set,
                 .grace_seconds = static_cast<int64_t>(std::ceil(spec.launch.grace.seconds + kSecondsBeyondGrace)),
                 .limit_seconds = {},
                 .max_restarts = spec.launch.max_restarts,
                 .variables = {},
                 .paths = {},
                 .fetched = {},
                 .metrics_port = spec.log.metrics_port,
                 .image = request.image,
                 .volumes = volumes_of(request.volumes)};
  if (spec.limits.max_duration) facts.limit_seconds = static_cast<int64_t>(spec.limits.max_duration->seconds);
  const std::string& host = spec.log.metrics_host;
  facts.serves_others = !host.starts_with("127.") && host != "localhost" && host != "::1";
  const std::string weights = spec.model.pretrained.value_or("");
  const bool is_file = weights.ends_with(".safetensors") || fs::exists(weights);
  if (!weights.empty() && !is_file && hub::model_name(weights)) facts.fetched = weights;
  read_nodes(spec, request.job.file, facts);
  facts.variables = variables_of(spec, facts);
  facts.paths = paths_of(spec, !facts.fetched.empty());
  check_job(job, request, can, facts);
  check_texts(facts);
  return facts;
}

SchedulerCatalog& schedulers() {
  static SchedulerCatalog catalog("scheduler");
  return catalog;
}

std::string scheduler_file(const SchedulerRequest& request) {
  const Job job = load_job(request.job);
  return schedulers().make(schedulers().with_defaults(request.format))->text(job_facts(job, request));
}

}  // namespace gputrain::app
