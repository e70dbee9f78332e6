#include "gputrain/setup/compatibility.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"

namespace gputrain::app {
namespace {

/// Abilities of the job's entries of catalogs.
struct JobAbilities {
  models::Abilities model;
  tasks::Abilities task;
  optim::Abilities rule;
  optim::CurveAbilities curve;
};

using FeatureList = std::vector<std::pair<const char*, bool>>;

FeatureList features_of_ranks(const train::ParallelSpec& spec) {
  return {{"parallel.tensor", spec.tensor > 1},
          {"parallel.pipeline", spec.pipeline > 1},
          {"parallel.virtual_stages", spec.virtual_stages > 1},
          {"parallel.context", spec.context > 1},
          {"parallel.shard", spec.shard != "none"},
          {"parallel.shard: gradients", spec.shard == "gradients"},
          {"parallel.shard: parameters", spec.shard == "parameters"},
          {"parallel.replicate", spec.replicate > 1},
          {"parallel.compress: fp16 or bf16", spec.compress == "fp16" || spec.compress == "bf16"},
          {"parallel.compress: powersgd", spec.compress == "powersgd"},
          {"parallel.powersgd_rank", !spec.powersgd_rank.is_auto()}};
}

FeatureList features_of_updates(const JobSpec& spec, const JobAbilities& can) {
  return {{"optimizer.averages: bf16", can.rule.narrow_state},
          {"optimizer.master: bf16", spec.optimizer.has_narrow_master()},
          {"an optimizer that can update bf16 weights", can.rule.narrow_masters},
          {"an optimizer that updates whole matrices", can.rule.whole_tensors},
          {"an optimizer with an average of the weights", can.rule.has_average},
          {"train.ema", spec.train.ema.has_value()},
          {"train.swa", spec.train.swa.has_value()},
          {"lr_scheduler.type: plateau", can.curve.follows_evaluations},
          {"data.val with eval.interval", spec.data.val && spec.eval.interval},
          {"precision: bf16", spec.precision == "bf16"},
          {"precision: fp16", spec.precision == "fp16"},
          {"precision: fp64", spec.precision == "fp64"}};
}

FeatureList features_of_steps(const JobSpec& spec) {
  const auto& how = spec.train.activation_checkpointing;
  const auto& micro = spec.train.micro_batch_size;
  const auto is_taken_away = [](const std::string& pattern) { return pattern.starts_with('!'); };
  return {{"train.activation_checkpointing: block", how == "block"},
          {"train.activation_checkpointing: selective", how == "selective"},
          {"train.micro_batch_size: auto", spec.train.searches_micro_batch()},
          {"train.micro_batch_size: a list", micro && micro->value && micro->value->values.size() > 1},
          {"train.cuda_graphs: auto", spec.train.cuda_graphs == "auto"},
          {"data.text.packing", spec.data.text.packing},
          {"log.histograms", spec.log.histograms.has_value()},
          {"eval.sample", spec.eval.sample.has_value()},
          {"alloc_conf", spec.alloc_conf.has_value()},
          {"device: cpu", spec.device == "cpu"},
          {"model.pretrained", spec.model.pretrained.has_value()},
          {"model.adapter", spec.model.adapter.has_value()},
          {"model.freeze", !std::ranges::all_of(spec.model.freeze, is_taken_away)}};
}

FeatureList features_of_model(const models::Abilities& model, const tasks::Abilities& task) {
  return {{"model.config.tie_embeddings", model.ties_ends},
          {"model.config.dropout", model.drops_out},
          {"model.config.qk_norm_across_heads", model.norms_across_heads},
          {"losses of the experts' routers", model.has_router_losses},
          {"a model with blocks", model.recomputes_blocks},
          {"a model with norms and activations", model.recomputes_selectively},
          {"a model that says which unit computes", model.announces_units},
          {"a model and a task whose layers can be shared", model.splits_layers && task.takes_parts_of_texts},
          {"a model and a task whose texts can be shared", model.takes_parts_of_texts && task.takes_parts_of_texts},
          {"a model and a task that run in stages", model.runs_in_parts && task.takes_last_layer_alone},
          {"a task that compares the samples of all ranks", task.compares_samples},
          {"a task that reads each text in a row of its own", task.reads_rows_alone}};
}

FeatureList all_features_of(const JobSpec& spec, const JobAbilities& can) {
  FeatureList all = features_of_ranks(spec.parallel);
  for (const FeatureList& more :
       {features_of_updates(spec, can), features_of_steps(spec), features_of_model(can.model, can.task)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

JobAbilities abilities_of(const JobSpec& spec) {
  const auto& architecture = spec.model.architecture;
  return {.model = models::catalog().abilities(architecture),
          .task = tasks::catalog().abilities(spec.task.type, models::catalog().reads(architecture)),
          .rule = optim::catalog().abilities(spec.optimizer.type),
          .curve = optim::schedules().abilities(spec.lr_scheduler.type)};
}

bool applies(const CompatibilityRule& rule, const Features& job) {
  if (!job.contains(rule.one) || (!rule.and_also.empty() && !job.contains(rule.and_also))) return false;
  return job.contains(rule.other) != (rule.relation == Relation::needs);
}

std::string with_names(std::string text, const JobSpec& spec) {
  const std::string& task = spec.task.type.name;
  for (const auto& [place, name] :
       {std::pair("{model}", spec.model.architecture.name), std::pair("{task}", task.empty() ? "the task" : task),
        std::pair("{optimizer}", spec.optimizer.type.name), std::pair("{curve}", spec.lr_scheduler.type.name)}) {
    const size_t at = text.find(place);
    if (at != std::string::npos) text.replace(at, std::string_view(place).size(), name);
  }
  return text;
}

Features features_of(const JobSpec& spec, const JobAbilities& can) {
  Features features;
  for (const auto& [name, has] : all_features_of(spec, can))
    if (has) features.insert(name);
  return features;
}

/// Removes features that have no effect on ranks that are arranged like this.
void leave_out_idle(Features& features, const comm::Mesh& mesh) {
  const auto leave_out = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) features.erase(name);
  };
  if (mesh.ranks == 1) leave_out({"parallel.compress: fp16 or bf16"});
  if (mesh.ranks == 1 && features.contains("parallel.compress: powersgd"))
    leave_out({"parallel.compress: powersgd", "parallel.powersgd_rank"});
  if (mesh.pipeline == 1 && features.contains("parallel.pipeline"))
    leave_out({"parallel.pipeline", "parallel.virtual_stages"});
  if (mesh.tensor == 1) leave_out({"parallel.tensor"});
  if (mesh.context == 1) leave_out({"parallel.context"});
  if (mesh.shards() == 1 && features.contains("parallel.shard"))
    leave_out({"parallel.shard", "parallel.shard: gradients", "parallel.shard: parameters", "parallel.replicate"});
}

void refuse_broken_rules(const Job& job, const Features& features) {
  const auto broken = broken_rules(features);
  if (broken.empty()) return;
  config::SpecIssues issues;
  for (const CompatibilityRule* rule : broken)
    issues.add(rule->one.substr(0, rule->one.find(':')), with_names(rule->why, job.spec()), rule->instead);
  throw job.loaded.error(issues);
}

}  // namespace

std::vector<std::string> all_features() {
  std::vector<std::string> names;
  for (const auto& [name, has] : all_features_of({}, {})) names.emplace_back(name);
  return names;
}

Features features_of(const JobSpec& spec) { return features_of(spec, abilities_of(spec)); }

std::vector<const CompatibilityRule*> broken_rules(const Features& features) {
  std::vector<const CompatibilityRule*> broken;
  for (const CompatibilityRule& rule : compatibility_rules()) {
    const bool refuses = rule.relation == Relation::excludes || rule.relation == Relation::needs;
    if (refuses && applies(rule, features)) broken.push_back(&rule);
  }
  return broken;
}

void check_compatibility(const Job& job) { refuse_broken_rules(job, features_of(job.spec())); }

void check_compatibility(const Job& job, const comm::Mesh& mesh, const tasks::Task* task) {
  JobAbilities can = abilities_of(job.spec());
  if (task != nullptr) can.task = task->abilities();
  Features features = features_of(job.spec(), can);
  leave_out_idle(features, mesh);
  refuse_broken_rules(job, features);
}

std::string why_given_up(const std::string& feature, const JobSpec& spec, const comm::Mesh& mesh) {
  Features features = features_of(spec);
  leave_out_idle(features, mesh);
  for (const CompatibilityRule& rule : compatibility_rules())
    if (rule.one == feature && rule.relation == Relation::gives_up && applies(rule, features)) return rule.why;
  return {};
}

}  // namespace gputrain::app
