#include <algorithm>
#include <array>
#include <numeric>

#include "gputrain/launch/node_list.hpp"
#include "gputrain/launch/nodes.hpp"
#include "host_name.hpp"
#include "launcher_env.hpp"

namespace gputrain::launch {
namespace {

/// Returns the number of the srun step that started this process. Empty outside of Slurm, in a batch script and in the
/// shell of salloc: these have the variables of a first task, but nobody started the others.
std::optional<uint64_t> step_of(const Variables& variables) {
  constexpr std::array kNames{"batch", "extern", "interactive", "pending"};
  constexpr uint64_t kFirstSpecial = 0xfffffff0;  // Slurm's numbers for those
  const char* name = variables.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  const auto text = variables.text(name);
  if (!text || std::ranges::find(kNames, *text) != kNames.end() || !variables.has("SLURM_PROCID")) return std::nullopt;
  const auto step = variables.large_number(name);
  return *step < kFirstSpecial ? step : std::nullopt;
}

/// Returns the value of a variable that srun always sets.
template <class Value>
Value required(const Variables& variables, const char* name, std::optional<Value> value) {
  if (!value) variables.fail("srun started this process, but " + std::string(name) + " is unset");
  return *value;
}

std::vector<int> task_counts(const Variables& variables) {
  constexpr const char* kName = "SLURM_STEP_TASKS_PER_NODE";
  const auto text = required(variables, kName, variables.text(kName));
  std::string problem;
  const auto counts = expand_task_counts(text, problem);
  if (!counts) variables.fail(std::string(kName) + "=" + in_quotes(text) + " is no list of tasks per node: " + problem);
  return *counts;
}

std::vector<std::string> listed_nodes(const Variables& variables, const char* name, const std::string& text) {
  std::string problem;
  auto hosts = expand_node_list(text, problem);
  if (!hosts) variables.fail(std::string(name) + "=" + in_quotes(text) + " is no list of nodes: " + problem);
  return *std::move(hosts);
}

std::vector<std::string> node_names(const Variables& variables, size_t count) {
  const char* name = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const auto text = required(variables, name, variables.text(name));
  auto hosts = listed_nodes(variables, name, text);
  if (hosts.size() != count) {
    variables.fail(std::string(name) + "=" + in_quotes(text) + " names " + std::to_string(hosts.size()) +
                   " nodes, but SLURM_STEP_TASKS_PER_NODE has " + std::to_string(count));
  }
  return hosts;
}

void read_tasks_of_node(const Variables& variables, const std::vector<int>& counts, LauncherEnv& env) {
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != env.world_size->value) {
    variables.fail("SLURM_STEP_TASKS_PER_NODE adds up to " + std::to_string(sum) + ", but " + env.world_size->text());
  }
  const auto node = required(variables, "SLURM_NODEID", variables.number("SLURM_NODEID", 0, kMaximumRanks));
  if (static_cast<size_t>(node.value) >= counts.size()) {
    variables.fail(node.text() + ", but SLURM_STEP_TASKS_PER_NODE names " + std::to_string(counts.size()) + " nodes");
  }
  env.local_world_size = Number{"SLURM_STEP_TASKS_PER_NODE", counts[static_cast<size_t>(node.value)]};
}

}  // namespace

std::optional<LauncherEnv> slurm_env(const Variables& variables) {
  const auto step = step_of(variables);
  if (!step) return std::nullopt;
  LauncherEnv env{.launcher = "Slurm", .how_to_set = "before srun: export", .starts_agents = true};
  env.rank = variables.number("SLURM_PROCID", 0, kMaximumRanks - 1);
  env.world_size =
      required(variables, "SLURM_NTASKS", variables.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, kMaximumRanks));
  env.local_rank = required(variables, "SLURM_LOCALID", variables.number("SLURM_LOCALID", 0, kMaximumRanks - 1));
  const auto counts = task_counts(variables);
  read_tasks_of_node(variables, counts, env);
  const auto job = required(variables, "SLURM_JOB_ID", variables.large_number("SLURM_JOB_ID"));
  constexpr uint64_t kStepsApart = 16;  // steps of one job with a port each before jobs share them
  env.port = port_of_job(job % 10000 * kStepsApart + *step);
  env.job = "Slurm job " + std::to_string(job) + " step " + std::to_string(*step);
  // Task 0 is on the first node, unless the user chose an arbitrary distribution.
  const bool is_arbitrary = variables.text("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary");
  if (!is_arbitrary && !variables.has("MASTER_ADDR")) env.first_host = node_names(variables, counts.size()).front();
  return env;
}

std::vector<std::string> allocated_nodes(const Lookup& lookup) {
  const Variables variables(lookup);
  constexpr const char* kName = "SLURM_JOB_NODELIST";
  const auto text = variables.text(kName);
  if (!text || step_of(variables)) return {};
  return listed_nodes(variables, kName, *text);
}

std::string remark_on_slurm(const Variables& variables) {
  const auto job = variables.text("SLURM_JOB_ID"), tasks = variables.text("SLURM_NTASKS");
  if (!job || !tasks || *tasks == "1") return {};
  return "Slurm job " + in_quotes(*job) + " has " + in_quotes(*tasks) +
         " tasks, but srun did not start this process: it trains alone; to use all tasks: srun gputrain run ...";
}

}  // namespace gputrain::launch
