#include "gputrain/job/job_spec.hpp"

#include "gputrain/config/names.hpp"
#include "gputrain/device/gpu_allocator.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "job_keys.hpp"

namespace gputrain::app {

using config::Change;

namespace {

void check_allocator(const JobSpec& spec, config::SpecIssues& issues) {
  if (!spec.alloc_conf) return;
  if (const auto problem = device::problem_of_allocator_settings(*spec.alloc_conf); !problem.empty())
    issues.add("alloc_conf", problem);
  if (spec.device == "cpu")
    issues.add("alloc_conf", "configures GPU memory, but device is cpu", "remove it, or set device: auto");
}

/// Whether the job can do without fp32 weights.
void check_master(const JobSpec& spec, config::SpecIssues& issues) {
  if (!spec.optimizer.has_narrow_master()) return;
  const auto refuse = [&](const std::string& why, const std::string& hint) {
    issues.add("optimizer.master", "bf16: " + why, hint + ", or optimizer.master: fp32");
  };
  if (spec.precision != "bf16") refuse("layers compute in " + spec.precision, "precision: bf16");
  if (!optim::takes_narrow_masters(spec.optimizer.type.name))
    refuse(spec.optimizer.type.name + " needs fp32 weights", "optimizer.type: adamw8bit or adamw");
  if (spec.parallel.tensor > 1) refuse("ranks that share layers keep fp32 weights", "parallel.tensor: 1");
  if (spec.parallel.pipeline > 1) refuse("stages of a pipeline keep fp32 weights", "parallel.pipeline: 1");
  if (spec.parallel.compress != "none") refuse("gradients are sent in bf16 already", "parallel.compress: none");
}

/// Whether this job's data gives the metric is checked after the data is open.
void check_metric(const JobSpec& spec, config::SpecIssues& issues) {
  const auto& name = spec.checkpoint.metric.value;
  if (!name || tasks::find_metric(*name) != nullptr) return;
  std::vector<std::string> names;
  for (const auto& metric : tasks::catalog().metrics()) names.push_back(metric.name);
  const std::string ours = config::ours_for(*name, names), near = config::did_you_mean(*name, names);
  std::string all;
  for (const auto& each : names) all += (all.empty() ? "" : ", ") + each;
  issues.add("checkpoint.metric", "no task measures '" + *name + "'",
             !ours.empty()   ? "metric: " + ours
             : !near.empty() ? near
                             : "one of " + all);
}

}  // namespace

void AdapterSpec::describe(config::Description<AdapterSpec>& d) {
  d.summary("what is added to the model and trained beside frozen parameters");
  d.choice("type", &AdapterSpec::type, models::adapters(), "kind of adapter; its options stand beside it");
}

std::filesystem::path ModelSpec::pretrained_path() const {
  return pretrained ? hub::pretrained_path(*pretrained) : std::filesystem::path{};
}

void ModelSpec::describe(config::Description<ModelSpec>& d) {
  d.summary("what is trained");
  d.choice("type", &ModelSpec::architecture, models::catalog(), "the architecture; see `gputrain list models`",
           "config")
      .required()
      .aliases({"model.name", "arch", "architecture", "model_type"});
  d.key("pretrained", &ModelSpec::pretrained,
        "weights to start from: a safetensors file, or a Hugging Face folder whose config.json gives the sizes, or its "
        "name "
        "on the Hub, fetched by `gputrain fetch`")
      .path()
      .change(Change::needs_accept)
      .aliases({"model_name_or_path", "base_model"});
  d.key("freeze", &ModelSpec::freeze,
        "parameters that are not trained, by patterns of full names: [\"*\", \"!head.*\"] trains the head alone, as "
        "! takes back; dropout stays on, and batch norm goes on updating its running statistics")
      .change(Change::needs_accept)
      .aliases({"freeze_layers", "frozen_layers"})
      .aliases("freeze_backbone", [](const std::string&) { return R"(["*", "!HEAD.*"])"; });
  d.key("adapter", &ModelSpec::adapter, "what is added to the model and trained beside frozen parameters");
  d.check([](const ModelSpec& spec, config::SpecIssues& issues) {
    if (!spec.adapter || spec.pretrained) return;
    issues.add("adapter", "an adapter changes little, and there is nothing to change: model.pretrained is missing",
               "model.pretrained: DIR");
  });
}

void TaskSpec::describe(config::Description<TaskSpec>& d) {
  d.summary("what is learned");
  d.choice("type", &TaskSpec::type, tasks::catalog(),
           "loss and metrics; null: the one that fits the model and the data; see `gputrain list tasks`", "config");
}

void ExpectSpec::describe(config::Description<ExpectSpec>& d) {
  d.summary("the band [low, high] each final metric should end in; checked at the end, exit code 4 under --verify");
  d.pattern("<split>/<metric>", &ExpectSpec::bands, "lowest and highest value of a final metric, such as val/top1")
      .elements(2)
      .change(Change::safe);
  d.check([](const ExpectSpec& spec, config::SpecIssues& issues) {
    for (const auto& [name, band] : spec.bands)
      if (band[0] > band[1]) issues.add(name, "the lower bound is above the upper bound", "[low, high]");
  });
  d.key("source", &ExpectSpec::source, "where the band comes from").change(Change::safe);
}

void JobSpec::describe(config::Description<JobSpec>& d) {
  describe_keys(d);
  d.check([](const JobSpec& spec, config::SpecIssues& issues) {
    check_job_start(spec, issues);
    if (spec.precision == "fp16" && spec.parallel.compress == "powersgd") {
      issues.add("parallel.compress",
                 "powersgd keeps errors from step to step, but the loss scale of fp16 changes between steps",
                 "precision: bf16, or parallel.compress: fp16");
    }
    check_master(spec, issues);
    check_allocator(spec, issues);
    check_metric(spec, issues);
  });
}

}  // namespace gputrain::app
