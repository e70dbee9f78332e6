// Which features of a job exclude each other: one table, by which `validate`, `run` and `plan` refuse a job before
// anything is opened, and of which configs/compatibility.md is made.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gputrain/comm/mesh.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// What the job alone tells, by name: "parallel.tensor", "parallel.shard: parameters", "a model that runs in parts".
using Features = std::set<std::string>;

/// All names, in the order of the page.
std::vector<std::string> all_features();
Features features_of(const JobSpec& spec);

/// What a rule says of a job that has the feature `one`.
enum class Relation {
  excludes,  // it must not have the other
  needs,     // it must have the other
  gives_up,  // with the other, it trains as if it did not have this one
  may_clash  // the model's names decide, when it is built
};

struct CompatibilityRule {
  std::string one;  // begins with its key
  Relation relation;
  std::string other;
  std::string why;            // {model}, {task}, {optimizer} and {curve} stand for their names
  std::string instead = {};   // what to write at the key of `one`
  std::string and_also = {};  // the rule is only for jobs that have this feature too; empty: for all
};
const std::vector<CompatibilityRule>& compatibility_rules();

/// The rules that refuse a job with these features, all of them.
std::vector<const CompatibilityRule*> broken_rules(const Features& features);

/// Throws SpecError with all rules that refuse the job, each at its key: on any number of ranks.
void check_compatibility(const Job& job);
/// The same for ranks that are arranged like this: what a job asks of more ranks than there are has no effect and is not
/// refused. `task`: of the open data, which decides where the job names none; null: there is no data yet.
void check_compatibility(const Job& job, const comm::Mesh& mesh, const tasks::Task* task = nullptr);

/// Why ranks that are arranged like this train without a feature that the job asks for; empty: they have it.
std::string why_given_up(const std::string& feature, const JobSpec& spec, const comm::Mesh& mesh);

/// The table as Markdown, with the reasons below it.
std::string compatibility_page();

}  // namespace gputrain::app
