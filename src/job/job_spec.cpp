#include "gputrain/job/job_spec.hpp"

#include "foreign/moving.hpp"
#include "gputrain/config/names.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/device/gpu_allocator.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/foreign.hpp"
#include "job_keys.hpp"

namespace gputrain::app {

using config::Change;

namespace {

void check_allocator(const JobSpec& spec, config::SpecIssues& issues) {
  if (!spec.alloc_conf) return;
  if (const auto problem = device::problem_of_allocator_settings(*spec.alloc_conf); !problem.empty())
    issues.add("alloc_conf", problem);
}

/// Checks that what `gputrain import` could not know was filled in.
void check_filled_in(const JobSpec& spec, config::SpecIssues& issues) {
  const auto& name = spec.model.pretrained;
  if (name && name->starts_with('<') && name->ends_with('>'))
    issues.add("model.pretrained", "fill in a name for " + *name, "the folder of a model, or its name on the Hub");
}

/// Checks that the metric exists. Other checks tell whether this job has it.
void check_metric(const JobSpec& spec, config::SpecIssues& issues) {
  const auto& name = spec.checkpoint.metric.value;
  if (!name || tasks::find_metric(*name) != nullptr) return;
  std::vector<std::string> names;
  for (const auto& metric : tasks::catalog().metrics()) names.push_back(metric.name);
  std::string ours = foreign::our_word("checkpoint.metric", *name);
  if (ours == "accuracy" && !models::catalog().reads(spec.model.architecture).reads_tokens()) ours = "top1";
  const std::string near = config::did_you_mean(*name, names);
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

void QuantizeSpec::describe(config::Description<QuantizeSpec>& d) {
  d.summary("how frozen weights of dense layers are kept in fewer bits");
  d.choice("type", &QuantizeSpec::type, nn::packings(), "kind of numbers; its options stand beside it")
      .alias_flag("load_in_4bit", "nf4")
      .alias_flag("load_in_8bit", "int8");
  d.key(
       "match", &QuantizeSpec::match,
       "weights that are quantised, by patterns of parameter names; one with ! in front takes some away again, and the "
       "last that matches counts. Empty: all of frozen dense layers. Never the head, embeddings and norms")
      .aliases({"modules", "target_modules"});
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
  d.key(
      "quantize", &ModelSpec::quantize,
      "how frozen weights are kept in fewer bits: an nf4 base with LoRA is QLoRA. A folder whose weights are quantised "
      "sets it");
  d.check([](const ModelSpec& spec, config::SpecIssues& issues) {
    const std::string name = lower_case(spec.pretrained.value_or(""));
    if (name == "true" || name == "yes")
      issues.add(
          "pretrained", "names the weights to begin with",
          "a file, a folder, or a name on the Hub that `gputrain fetch` has brought here: timm/resnet50.a1_in1k");
    else if (name == "false" || name == "no")
      issues.add("pretrained", "names the weights to begin with", "null, for none");
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
  d.foreign(instead_of_foreign);
  d.check([](const JobSpec& spec, config::SpecIssues& issues) {
    check_job_start(spec, issues);
    check_allocator(spec, issues);
    check_metric(spec, issues);
    check_filled_in(spec, issues);
  });
}

}  // namespace gputrain::app
