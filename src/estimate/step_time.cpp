#include "gputrain/estimate/step_time.hpp"

#include <algorithm>
#include <bit>

#include "gputrain/core/numbers.hpp"

namespace gputrain::app {
namespace {

double& part_of(StepTime& time, Limit limit) {
  switch (limit) {
    case Limit::compute:
      return time.compute;
    case Limit::between_hosts:
      return time.between_hosts;
    case Limit::inside_host:
      return time.inside_host;
    case Limit::memory:
      break;
  }
  return time.memory;
}

/// Collectives one after the other.
struct Sequence {
  double seconds = 0, edge = 0;  // edge: of the one beside which nothing computes
  Limit limit = Limit::inside_host;
};

enum class Edge { first, last };

Sequence sequence_of(const std::vector<Collective>& collectives, Edge edge, const ClusterRates& rates) {
  Sequence all;
  StepTime by_limit;
  for (const Collective& one : collectives) {
    const CollectiveTime time = collective_time(one, rates);
    all.seconds += time.seconds;
    if (edge == Edge::last || all.edge == 0) all.edge = time.seconds;
    part_of(by_limit, time.limit) += time.seconds;
  }
  all.limit = by_limit.between_hosts > by_limit.inside_host ? Limit::between_hosts : Limit::inside_host;
  return all;
}

/// A pass with its collectives beside it.
void add_pass(StepTime& time, double compute, const Sequence& sent) {
  const double beside = sent.seconds - sent.edge;
  part_of(time, beside > compute ? sent.limit : Limit::compute) += std::max(beside, compute);
  part_of(time, sent.limit) += sent.edge;
}

}  // namespace

const char* name_of(Limit limit) {
  switch (limit) {
    case Limit::compute:
      return "compute";
    case Limit::between_hosts:
      return "wire between hosts";
    case Limit::inside_host:
      return "wire inside a host";
    case Limit::memory:
      break;
  }
  return "memory traffic";
}

CollectiveTime collective_time(const Collective& collective, const ClusterRates& rates) {
  const int64_t ranks = collective.ranks;
  if (ranks <= 1) return {};
  const int64_t hosts = std::min(ranks, ceil_divide(ranks * collective.stride, rates.ranks_per_host)),
                in_host = ceil_divide(ranks, hosts);
  const bool is_all_reduce = collective.kind == Collective::Kind::all_reduce;
  const double rounds = is_all_reduce ? 2 : 1, of_a_hop = rates.inside_latency.value;
  const double of_a_host = rates.between_latency.value;
  const double ring =
      rounds * (static_cast<double>(ranks - hosts) * of_a_hop + static_cast<double>(hosts - 1) * of_a_host);
  const auto depth = static_cast<double>(std::bit_width(static_cast<uint64_t>(hosts - 1)));
  const double tree = rounds * (static_cast<double>(in_host - 1) * of_a_hop + depth * of_a_host);
  const double adapters = rates.between.reached() * static_cast<double>(in_host);
  const bool is_between = hosts > 1 && adapters < rates.inside.reached();
  const double rate = is_between ? adapters : rates.inside.reached();
  const double sent =
      rounds * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * static_cast<double>(collective.bytes);
  return {.seconds = rates.start.value + sent / rate + (is_all_reduce ? std::min(ring, tree) : ring),
          .limit = is_between ? Limit::between_hosts : Limit::inside_host};
}

Limit StepTime::limit() const noexcept {
  const double most = std::max({compute, between_hosts, inside_host, memory});
  if (most == compute) return Limit::compute;
  if (most == between_hosts) return Limit::between_hosts;
  return most == inside_host ? Limit::inside_host : Limit::memory;
}

StepTime step_time(const StepWork& work, const ClusterRates& rates) {
  StepTime time;
  const auto passes = static_cast<double>(work.passes);
  const auto add_passes = [&](double times, double flops, const Sequence& sent) {
    StepTime one;
    add_pass(one, flops / rates.compute.reached(), sent);
    time.compute += times * one.compute;
    time.between_hosts += times * one.between_hosts;
    time.inside_host += times * one.inside_host;
  };
  add_passes(passes, work.forward_flops, sequence_of(work.in_forward, Edge::first, rates));
  std::vector<Collective> last = work.in_backward;
  last.insert(last.end(), work.in_last_backward.begin(), work.in_last_backward.end());
  add_passes(passes - 1, work.backward_flops, sequence_of(work.in_backward, Edge::last, rates));
  add_passes(1, work.backward_flops, sequence_of(last, Edge::last, rates));
  const Sequence after = sequence_of(work.after_update, Edge::last, rates);
  part_of(time, after.limit) += after.seconds;
  time.memory = (passes * work.pass_bytes + work.update_bytes) / rates.memory.reached();
  return time;
}

}  // namespace gputrain::app
