// The job keys for starting ranks, and the hosts that they name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/launch/nodes.hpp"

namespace gputrain::launch {

struct AdmissionSpec {
  double min_percent = 80;
  std::string action = "refuse";

  static void describe(config::Description<AdmissionSpec>& d);
};

struct LaunchSpec {
  std::optional<std::vector<std::string>> hosts;  // "node0:8"
  std::optional<std::string> hostfile;
  std::optional<std::string> nnodes;  // "2", "1:4"
  config::Auto<int64_t> nproc_per_node;
  int64_t master_port = 0;
  int64_t max_restarts = 3;
  config::Duration grace{300};
  config::Duration host_timeout{300};
  std::optional<AdmissionSpec> admission;

  static void describe(config::Description<LaunchSpec>& d);
};

/// Checks the variables that the job sets for every rank. Complains about `env.<name>` if the name is not valid or
/// defines a rank.
void check_environment_names(const std::map<std::string, std::string>& variables, config::SpecIssues& issues);

struct Host {
  std::string name;          // as passed to `ssh`
  std::optional<int> ranks;  // empty: use nproc_per_node

  bool is_here() const;  // this machine: no ssh
};

/// Reads "node0", "node0:8", "user@node0:8", "[fe80::1]:8". Refuses what is no host name, above all what ssh or a shell
/// could misread: returns empty, with the reason in `problem`.
std::optional<Host> read_host(const std::string& text, std::string& problem);

/// Reads one host per line, as OpenMPI and DeepSpeed ("node0 slots=8") or MPICH and Horovod ("node0:8") write them;
/// comments begin with '#'. Throws Error(usage) with the line.
std::vector<Host> read_hostfile(const std::string& path);

/// The least and the most hosts that a run uses.
struct HostCount {
  int least = 1, most = 1;
};
std::optional<HostCount> read_host_count(const std::string& text);

/// The hosts of a job and how many of them it uses.
struct HostPlan {
  std::vector<Host> hosts;
  HostCount count;
};
/// Returns the hosts that the job names; else the `allocated` ones; else this machine. Throws Error(usage).
HostPlan plan_hosts(const LaunchSpec& spec, const std::vector<std::string>& allocated = {});
/// Plans for launchers that a scheduler starts, one per node: `hosts` has this node, `count` all. Throws Error(usage).
HostPlan plan_nodes(const LaunchSpec& spec, const NodeContext& context);

}  // namespace gputrain::launch
