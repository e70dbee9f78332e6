#include "gputrain/launch/environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "host_name.hpp"
#include "launcher_env.hpp"

namespace gputrain::launch {
namespace {

constexpr uint16_t kUsualPort = 29500;  // torchrun's default too

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool differ(const std::optional<Number>& a, const std::optional<Number>& b) { return a && b && a->value != b->value; }

/// Returns whether the outer launcher started not this process but the inner launcher or its agents: torchrun under
/// srun, or mpirun in an sbatch script, which starts its agents with srun.
bool is_agents_launcher(const LauncherEnv& inner, const LauncherEnv& outer) {
  if (!inner.rank) return false;
  const bool is_mpi = !inner.how_to_set.empty();
  if (is_mpi && outer.starts_agents) {
    return differ(inner.rank, outer.rank) || differ(inner.world_size, outer.world_size);
  }
  if (!inner.world_size || !outer.world_size) return false;
  const bool is_one_task = outer.world_size->value == 1 && inner.world_size->value > 1;
  return is_one_task || inner.agents == outer.world_size->value;
}

/// Returns the inner claim completed by the outer one. Values that both have must be equal.
LauncherEnv combine(const Variables& variables, LauncherEnv inner, const LauncherEnv& outer) {
  if (is_agents_launcher(inner, outer)) return inner;
  const auto merge = [&](std::optional<Number>& own, const std::optional<Number>& other) {
    if (differ(own, other)) {
      variables.fail("two launchers contradict each other: " + own->text() + ", but " + other->text(),
                     "start the job with one of them, or unset the variables of the other");
    }
    if (!own) own = other;
  };
  if (!inner.rank) inner.launcher = outer.launcher;
  merge(inner.rank, outer.rank);
  merge(inner.world_size, outer.world_size);
  merge(inner.local_rank, outer.local_rank);
  merge(inner.local_world_size, outer.local_world_size);
  if (inner.first_host.empty()) inner.first_host = outer.first_host;
  if (!inner.port) inner.port = outer.port;
  if (inner.job.empty()) inner.job = outer.job;
  if (inner.how_to_set.empty()) inner.how_to_set = outer.how_to_set;
  inner.starts_agents = inner.starts_agents || outer.starts_agents;
  return inner;
}

/// Returns the claims of all launchers combined; empty without any.
std::optional<LauncherEnv> combined_env(const Variables& variables) {
  std::optional<LauncherEnv> env;
  for (const auto read : {&slurm_env, &pmix_env, &pmi_env, &open_mpi_env, &explicit_env}) {  // from outer to inner
    auto inner = read(variables);
    if (inner) env = env ? combine(variables, *std::move(inner), *env) : *std::move(inner);
  }
  return env;
}

/// Throws if the environment describes a rank but lacks this variable.
void require(const Variables& variables, const char* name, bool is_there) {
  if (!is_there) variables.fail(std::string("the environment describes one rank of many, but ") + name + " is unset");
}

// Without LOCAL_*: ranks that meet on the loopback are all on this host, others have one host each.
void read_local(const Variables& variables, const LauncherEnv& env, comm::Rendezvous& at) {
  if (env.local_world_size && !env.local_rank) {
    variables.fail(env.local_world_size->text() + " is set, but LOCAL_RANK is not");
  }
  const bool one_host = is_loopback(at.master_address);
  at.local_world_size = one_host ? at.world_size : 1;
  at.local_rank = one_host ? at.rank : 0;
  if (env.local_rank) at.local_rank = env.local_rank->value;
  at.local_world_size =
      env.local_world_size ? env.local_world_size->value : std::max(at.local_world_size, at.local_rank + 1);
  if (at.local_world_size > at.world_size) {
    variables.fail((env.local_world_size ? env.local_world_size : env.local_rank)->text() + " does not fit " +
                   env.world_size->text());
  }
  if (at.local_rank >= at.local_world_size) {
    variables.fail(env.local_rank->text() + " is not below " + env.local_world_size->text());
  }
  if (at.local_rank > at.rank) variables.fail(env.local_rank->text() + " is above " + env.rank->text());
}

bool is_on_one_host(const LauncherEnv& env) {
  return env.local_world_size && env.local_world_size->value == env.world_size->value;
}

std::string read_address(const Variables& variables, const LauncherEnv& env) {
  if (const auto given = variables.text("MASTER_ADDR")) {
    if (given->empty()) variables.fail("the environment describes one rank of many, but MASTER_ADDR is empty");
    const std::string address = without_brackets(*given);
    if (is_host_name(address) && std::ranges::count(address, ':') != 1) return address;
    variables.fail("MASTER_ADDR=" + in_quotes(*given) + " is no host name",
                   "give the name or the numeric address of rank 0's host, and the port as MASTER_PORT");
  }
  if (env.how_to_set.empty()) require(variables, "MASTER_ADDR", false);
  if (is_on_one_host(env)) return "127.0.0.1";
  if (env.first_host.empty()) {
    variables.fail(env.launcher + " does not say which host rank 0 is on, and MASTER_ADDR is unset",
                   "set it: " + env.how_to_set + " MASTER_ADDR" + (env.how_to_set.ends_with("-genv") ? " " : "=") +
                       "HOST_OF_RANK_0");
  }
  return env.first_host;
}

uint16_t read_port(const Variables& variables, const LauncherEnv& env) {
  if (const auto given = variables.number("MASTER_PORT", 1, 65535)) return static_cast<uint16_t>(given->value);
  if (env.how_to_set.empty()) require(variables, "MASTER_PORT", false);
  return env.port.value_or(kUsualPort);
}

int allotted_cpus(const Variables& variables) {
  constexpr int kMostCpus = 1 << 16;
  const auto cpus = variables.number("SLURM_CPUS_ON_NODE", 1, kMostCpus);
  return cpus ? cpus->value : 0;
}

}  // namespace

Launch read_environment(const Lookup& lookup) {
  const Variables variables(lookup);
  auto env = combined_env(variables);
  if (!env) {
    return {.launcher = "alone", .allotted_cpus = allotted_cpus(variables), .remark = remark_on_slurm(variables)};
  }
  const bool is_alone = env->world_size && env->world_size->value == 1;  // it meets nobody
  if (is_alone && !env->rank) env->rank = Number{"RANK", 0};
  require(variables, "RANK", env->rank.has_value());
  require(variables, "WORLD_SIZE", env->world_size.has_value());
  if (env->rank->value >= env->world_size->value) {
    variables.fail(env->rank->text() + " is not below " + env->world_size->text());
  }
  comm::Rendezvous at{.rank = env->rank->value, .world_size = env->world_size->value};
  if (!is_alone) {
    at.master_address = read_address(variables, *env);
    at.master_port = read_port(variables, *env);
  }
  read_local(variables, *env, at);
  // torchrun's agent keeps its store open for its workers: rank 0 must not serve another one on the same port.
  at.store_is_running = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  at.attempt = lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  at.job = env->job;
  return {.launcher = env->launcher, .rendezvous = std::move(at), .allotted_cpus = allotted_cpus(variables)};
}

Launch read_environment() {
  return read_environment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace gputrain::launch
