// Table of the features of a job that exclude each other, by which `validate`, `run` and `plan` refuse a job before
// anything is opened, and from which configs/compatibility.md is made.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gputrain/comm/mesh.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Features that the job alone tells, by name: "parallel.tensor", "parallel.shard: parameters".
using Features = std::set<std::string>;

/// Returns all names.
std::vector<std::string> all_features();
/// Returns the features of a job. `task`: that of the open data, which decides where the job names none; null: there is
/// no data yet.
Features features_of(const JobSpec& spec, const tasks::Task* task = nullptr);

/// Effect of a rule on a job that has the feature `one`.
enum class Relation {
  excludes,  // must not have the other
  needs,     // must have the other
  gives_up,  // trains with the other as if it did not have this one
  may_clash  // depends on the model's names, when it is built
};
/// Returns the relation as the verb between its two features.
const char* words_of(Relation relation);

struct CompatibilityRule {
  std::string one;  // feature whose name begins with its key
  Relation relation;
  std::string other;
  std::string why;            // reason; {model}, {task}, {optimizer} and {curve} stand for their names
  std::string instead = {};   // value to write at the key of `one`
  std::string and_also = {};  // feature that such jobs must have too; empty: the rule is for all
};
const std::vector<CompatibilityRule>& compatibility_rules();

/// Returns all rules that refuse a job with these features.
std::vector<const CompatibilityRule*> broken_rules(const Features& features);

/// Throws SpecError with all rules that refuse the job, each at its key, on any number of ranks.
void check_compatibility(const Job& job);
/// Throws the same for ranks that are arranged like this: a setting for more ranks than exist has no effect and is not
/// refused. `task`: as above.
void check_compatibility(const Job& job, const comm::Mesh& mesh, const tasks::Task* task = nullptr);

/// Returns the reason why ranks that are arranged like this train without a feature of the job; empty: they have it.
std::string why_given_up(const std::string& feature, const JobSpec& spec, const comm::Mesh& mesh);

/// Returns the page of the table, as Markdown.
std::string compatibility_page();

}  // namespace gputrain::app
