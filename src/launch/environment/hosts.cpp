#include "gputrain/launch/hosts.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "gputrain/core/error.hpp"
#include "host_name.hpp"

namespace gputrain::launch {
namespace {

constexpr int kMostRanksOfAHost = 4096;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// Returns a number from 1 to `highest`.
std::optional<int> read_number(std::string_view text, int highest) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_good = failure == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= highest;
  return is_good ? std::optional(value) : std::nullopt;
}

std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void check_hosts(const LaunchSpec& spec, config::SpecIssues& issues) {
  if (spec.hosts && spec.hostfile)
    issues.add("hostfile", "launch.hosts and launch.hostfile are both given", "keep one");
  std::set<std::string> seen;
  for (const auto& text : spec.hosts.value_or(std::vector<std::string>())) {
    std::string problem;
    const auto host = read_host(text, problem);
    if (!host)
      issues.add("hosts", problem, "as in [\"node0:8\", \"node1:8\"]");
    else if (!seen.insert(host->name).second)
      issues.add("hosts", "the host " + host->name + " is named twice");
  }
}

void check_count(const LaunchSpec& spec, config::SpecIssues& issues) {
  if (!spec.nnodes) return;
  const auto count = read_host_count(*spec.nnodes);
  if (!count) {
    issues.add("nnodes", in_quotes(*spec.nnodes) + " is no number of hosts",
               "as in 2, or \"1:4\" for at least 1 and at most 4");
  } else if (spec.hosts && count->most > static_cast<int>(spec.hosts->size())) {
    issues.add("nnodes", "up to " + std::to_string(count->most) + " hosts are wanted, but launch.hosts names " +
                             std::to_string(spec.hosts->size()));
  }
}

std::vector<Host> named_hosts(const LaunchSpec& spec, const std::vector<std::string>& allocated) {
  if (spec.hostfile) return read_hostfile(*spec.hostfile);
  std::vector<Host> hosts;
  for (const auto& text : spec.hosts.value_or(allocated.empty() ? std::vector<std::string>{"localhost"} : allocated)) {
    std::string problem;
    if (auto host = read_host(text, problem)) hosts.push_back(std::move(*host));
  }
  return hosts;
}

}  // namespace

void AdmissionSpec::describe(config::Description<AdmissionSpec>& d) {
  using config::Change;
  d.summary("measure each host before the first start, as `gputrain doctor --bench` does");
  d.key("min_percent", &AdmissionSpec::min_percent,
        "a host is too slow with less than this much of the best known of its kind, in any measurement")
      .range(1, 100)
      .unit("%")
      .change(Change::safe);
  d.key("action", &AdmissionSpec::action,
        "refuse: do not start (exit 6) if a host is too slow; exclude: leave it out if launch.nnodes allows that")
      .choices({"refuse", "exclude"})
      .change(Change::safe);
}

void LaunchSpec::describe(config::Description<LaunchSpec>& d) {
  using config::Change;
  d.summary("ranks that `gputrain launch` starts, watches and restarts");
  d.key("hosts", &LaunchSpec::hosts,
        "hosts by the names that your ssh knows, with ranks per host: [\"node0:8\", \"node1:8\"]; null: this machine")
      .elements(1, 4096)
      .change(Change::safe);
  d.key("hostfile", &LaunchSpec::hostfile, "a file with one host per line, \"node0 slots=8\" or \"node0:8\"")
      .path()
      .change(Change::safe);
  d.key("nnodes", &LaunchSpec::nnodes,
        "number of hosts; \"MIN:MAX\": go on without lost ones while MIN are left, and take them back; null: all")
      .change(Change::safe)
      .aliases({"num_machines", "num_nodes"});
  d.key("nproc_per_node", &LaunchSpec::nproc_per_node,
        "ranks on a host that names no number; auto: one per GPU, 1 without GPUs")
      .range(1, kMostRanksOfAHost)
      .change(Change::safe)
      .aliases({"slots_per_trial", "num_processes", "devices", "gpus", "num_gpus"});
  d.key("master_port", &LaunchSpec::master_port, "port on the first host where the ranks meet; 0: a free port")
      .range(0, 65535)
      .change(Change::safe);
  d.key("max_restarts", &LaunchSpec::max_restarts, "starts after the first one, from the newest good checkpoint")
      .at_least(0)
      .change(Change::safe);
  d.key("grace", &LaunchSpec::grace, "how long ranks that were asked to stop may take to save before they are killed")
      .above(0)
      .change(Change::safe);
  d.key("host_timeout", &LaunchSpec::host_timeout, "how long to wait for lost hosts when too few are left")
      .at_least(0)
      .change(Change::safe);
  d.key("admission", &LaunchSpec::admission, "whether slow hosts may take part; null: nothing is measured")
      .change(Change::safe);
  d.check([](const LaunchSpec& spec, config::SpecIssues& issues) {
    check_hosts(spec, issues);
    check_count(spec, issues);
  });
}

void check_environment_names(const std::map<std::string, std::string>& variables, config::SpecIssues& issues) {
  static const std::set<std::string> of_ranks{"RANK",       "WORLD_SIZE",       "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                              "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  for (const auto& [name, value] : variables) {
    const bool is_name = !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
                         std::ranges::all_of(name, [](char c) { return is_letter_or_digit(c) || c == '_'; });
    if (!is_name) issues.add("env", in_quotes(name) + " is not a valid name of a variable", "letters, digits and _");
    if (of_ranks.contains(name) || name.starts_with("TORCHELASTIC_")) {
      issues.add("env." + name, "defines a rank, which only the launcher may do", "remove it");
    }
    if (value.find('\0') != std::string::npos) issues.add("env." + name, "has a zero byte, which no variable can hold");
  }
}

bool Host::is_here() const {
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]" || name == own_name();
}

std::optional<Host> read_host(const std::string& text, std::string& problem) {
  Host host{.name = text, .ranks = {}};
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && !text.ends_with(']')) {
    host.name = text.substr(0, colon);
    host.ranks = read_number(std::string_view(text).substr(colon + 1), kMostRanksOfAHost);
    if (!host.ranks) {
      problem = in_quotes(text) + " must end in a number of ranks from 1 to " + std::to_string(kMostRanksOfAHost);
      return std::nullopt;
    }
  }
  const size_t at = host.name.find('@');
  const std::string user = at == std::string::npos ? "user" : host.name.substr(0, at);
  const std::string machine = at == std::string::npos ? host.name : host.name.substr(at + 1);
  const bool is_v6 = machine.size() > 2 && machine.starts_with('[') && machine.ends_with(']');
  const bool is_good = is_v6 ? machine[1] != '[' && is_host_name("x" + machine.substr(1, machine.size() - 2))
                             : is_host_name(machine) && machine.find_first_of(":%") == std::string::npos;
  if (!is_good || !is_host_name(user)) {
    problem = in_quotes(text) + " is no host name";
    return std::nullopt;
  }
  return host;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  std::vector<Host> hosts;
  int number = 0;
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::usage, {.what = what,
                                  .where = number == 0 ? path : path + ":" + std::to_string(number),
                                  .hint = "one host per line, as in `node0 slots=8` or `node0:8`"});
  };
  if (!file) refuse("the hostfile cannot be read");
  for (std::string line; ++number, std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more, problem;
    if (!(words >> name)) continue;
    words >> slots >> more;
    auto host = read_host(name, problem);
    if (!host) refuse(problem);
    if (!slots.empty()) {
      const auto ranks = slots.starts_with("slots=") ? read_number(std::string_view(slots).substr(6), kMostRanksOfAHost)
                                                     : std::nullopt;
      if (!ranks || host->ranks || !more.empty())
        refuse("after the host only slots=N is allowed, not " + in_quotes(slots + " " + more));
      host->ranks = ranks;
    }
    if (std::ranges::any_of(hosts, [&](const Host& other) { return other.name == host->name; }))
      refuse("the host " + host->name + " is named twice");
    hosts.push_back(std::move(*host));
  }
  number = 0;
  if (hosts.empty()) refuse("the file names no host");
  return hosts;
}

std::optional<HostCount> read_host_count(const std::string& text) {
  constexpr int kMostHosts = 1 << 16;
  const size_t colon = text.find(':');
  const auto least = read_number(std::string_view(text).substr(0, colon), kMostHosts);
  const auto most =
      colon == std::string::npos ? least : read_number(std::string_view(text).substr(colon + 1), kMostHosts);
  if (!least || !most || *least > *most) return std::nullopt;
  return HostCount{.least = *least, .most = *most};
}

HostPlan plan_hosts(const LaunchSpec& spec, const std::vector<std::string>& allocated) {
  HostPlan plan{.hosts = named_hosts(spec, allocated), .count = {}};
  const int all = static_cast<int>(plan.hosts.size());
  plan.count = {.least = all, .most = all};
  if (spec.nnodes) plan.count = read_host_count(*spec.nnodes).value_or(plan.count);
  if (plan.count.most > all) {
    throw Error(ExitCode::usage, {.what = "launch.nnodes wants up to " + std::to_string(plan.count.most) +
                                          " hosts, but " + std::to_string(all) + (all == 1 ? " is" : " are") + " named",
                                  .hint = "name them with --hosts or --hostfile"});
  }
  for (auto& host : plan.hosts) {
    if (!host.ranks && spec.nproc_per_node.value) host.ranks = static_cast<int>(*spec.nproc_per_node.value);
  }
  return plan;
}

HostPlan plan_nodes(const LaunchSpec& spec, const NodeContext& context) {
  HostPlan plan{.hosts = {Host{.name = "localhost", .ranks = context.ranks}},
                .count = {.least = context.nodes, .most = context.nodes}};
  if (spec.nproc_per_node.value) plan.hosts[0].ranks = static_cast<int>(*spec.nproc_per_node.value);
  if (!spec.nnodes) return plan;
  plan.count = read_host_count(*spec.nnodes).value_or(plan.count);
  if (plan.count.most != context.nodes) {
    throw Error(ExitCode::usage, {.what = "launch.nnodes is " + in_quotes(*spec.nnodes) + ", but " + context.scheduler +
                                          " says that there are " + std::to_string(context.nodes) + " nodes",
                                  .hint = "leave it out, or give MIN:" + std::to_string(context.nodes) +
                                          " to go on without lost nodes"});
  }
  return plan;
}

}  // namespace gputrain::launch
