// The keys of the job about starting ranks, and the hosts they name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/launch/nodes.hpp"

namespace gputrain::launch {

struct LaunchSpec {
  std::optional<std::vector<std::string>> hosts;  // "node0:8"
  std::optional<std::string> hostfile;
  std::optional<std::string> nnodes;  // "2", "1:4"
  config::Auto<int64_t> nproc_per_node;
  int64_t master_port = 0;
  int64_t max_restarts = 3;
  config::Duration grace{300};
  config::Duration host_timeout{300};

  static void describe(config::Description<LaunchSpec>& d);
};

/// Variables the job gives to every rank. A name that decides what a rank is, or that is no name, is a complaint about
/// `env.<name>`.
void check_environment_names(const std::map<std::string, std::string>& variables, config::Complaints& complaints);

struct Host {
  std::string name;          // what `ssh` is given
  std::optional<int> ranks;  // empty: as many as nproc_per_node says

  bool is_here() const;  // this machine: no ssh
};

/// "node0", "node0:8", "user@node0:8", "[fe80::1]:8". Anything that is no host name is refused, above all what ssh or a
/// shell would take for something else. Returns what is wrong in `problem`.
std::optional<Host> read_host(const std::string& text, std::string& problem);

/// As OpenMPI, DeepSpeed ("node0 slots=8") and MPICH, Horovod ("node0:8") write them: one host per line, remarks after
/// '#'. Throws Error(usage) with the line.
std::vector<Host> read_hostfile(const std::string& path);

/// How many hosts a run needs at least and takes at most.
struct HostCount {
  int least = 1, most = 1;
};
std::optional<HostCount> read_host_count(const std::string& text);

/// The hosts of a job, and how many of them it runs on. Throws Error(usage).
struct HostPlan {
  std::vector<Host> hosts;
  HostCount count;
};
/// Those that the job names; else `allocated` ones; else this machine alone.
HostPlan plan_hosts(const LaunchSpec& spec, const std::vector<std::string>& allocated = {});
/// Nodes that a scheduler has started a launcher on, this one before the others.
HostPlan plan_nodes(const LaunchSpec& spec, const NodePlace& place);

}  // namespace gputrain::launch
