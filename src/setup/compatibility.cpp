#include "gputrain/setup/compatibility.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

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

/// Removes features that have no effect on ranks that are arranged like this.
void leave_out_idle(Features& features, const comm::Mesh& mesh) {
  const auto leave_out = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) features.erase(name);
  };
  if (mesh.ranks == 1) leave_out({"parallel.compress"});
  if (mesh.pipeline == 1 && features.contains("parallel.pipeline"))
    leave_out({"parallel.pipeline", "parallel.virtual_stages"});
  if (mesh.tensor == 1) leave_out({"parallel.tensor"});
  if (mesh.context == 1) leave_out({"parallel.context"});
  if (mesh.shards() == 1 && features.contains("parallel.shard"))
    leave_out({"parallel.shard", "parallel.shard: gradients", "parallel.shard: parameters", "parallel.replicate"});
}

/// Adds a metric that decides which checkpoint is the best, but is none of the job's task.
void note_metric(const JobSpec& spec, config::SpecIssues& issues) {
  const auto& name = spec.checkpoint.metric.value;
  if (!name || !spec.data.val) return;
  const auto measured = tasks::catalog().measured(spec.task.type, models::catalog().reads(spec.model.architecture));
  if (measured.empty() || std::ranges::find(measured, *name) != measured.end()) return;
  const std::string other = *name == "top1" ? "accuracy" : *name == "accuracy" ? "top1" : "";
  const bool has_other = std::ranges::find(measured, other) != measured.end();
  issues.add("checkpoint.metric", "'" + *name + "' is not measured by the task of this model",
             has_other ? "metric: " + other : fmt::format("one of {}", fmt::join(measured, ", ")));
}

void refuse_broken_rules(const Job& job, const Features& features) {
  const auto broken = broken_rules(features);
  config::SpecIssues issues;
  note_metric(job.spec(), issues);
  for (const CompatibilityRule* rule : broken)
    issues.add(rule->one.substr(0, rule->one.find(':')),
               fmt::format("{} {}: {}", words_of(rule->relation), rule->other, with_names(rule->why, job.spec())),
               "instead: " + rule->instead);
  if (!issues.all().empty()) throw job.loaded.error(issues);
}

}  // namespace

const char* words_of(Relation relation) {
  switch (relation) {
    case Relation::excludes:
      return "does not go with";
    case Relation::needs:
      return "needs";
    case Relation::gives_up:
      return "has no effect with";
    case Relation::may_clash:
      return "may not go with";
  }
  return "";
}

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
  Features features = features_of(job.spec(), task);
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
