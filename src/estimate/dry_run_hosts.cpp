#include "gputrain/estimate/dry_run_hosts.hpp"

#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::app {
namespace {

[[noreturn]] void refuse(std::string what, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .hint = std::move(hint)});
}

DryRunHosts named_hosts(const launch::LaunchSpec& spec, int world_size) {
  const auto plan = launch::plan_hosts(spec);
  const std::string source = spec.hostfile ? *spec.hostfile : "launch.hosts";
  int ranks = 0;
  for (int i = 0; i < plan.count.most; ++i) {
    const launch::Host& host = plan.hosts[static_cast<size_t>(i)];
    if (!host.ranks) {
      refuse(source + " does not say how many ranks " + host.name + " takes",
             "--nproc-per-node 8, or " + host.name + ":8");
    }
    ranks += *host.ranks;
  }
  const std::string names =
      fmt::format("{} names {} for {}", source, counted(plan.count.most, "host"), counted(ranks, "rank"));
  if (ranks < world_size) {
    refuse(fmt::format("{}, fewer than --world-size {}", names, world_size),
           fmt::format("name more hosts, or --world-size {}", ranks));
  }
  const std::string more =
      ranks > world_size ? fmt::format("; `gputrain launch` would start all of them, not {}", world_size) : "";
  return {.hosts = plan.count.most, .ranks_per_host = *plan.hosts.front().ranks, .text = names + more};
}

}  // namespace

DryRunHosts plan_dry_run_hosts(const launch::LaunchSpec& spec, int world_size) {
  if (spec.hosts || spec.hostfile) return named_hosts(spec, world_size);
  const int each = static_cast<int>(spec.nproc_per_node.value.value_or(0));
  if (each == 0) return {.hosts = 0, .ranks_per_host = 0, .text = counted(world_size, "rank") + " on hosts not named"};
  if (world_size % each != 0) {
    const int fewer = world_size / each * each;
    refuse(
        fmt::format("--world-size {} is no whole number of hosts with {} each", world_size, counted(each, "rank")),
        (fewer > 0 ? fmt::format("--world-size {} or {}", fewer, fewer + each) : fmt::format("--world-size {}", each)));
  }
  return {.hosts = world_size / each,
          .ranks_per_host = each,
          .text = counted(world_size / each, "host") + " x " + counted(each, "rank")};
}

}  // namespace gputrain::app
