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
    case Limit::waiting:
      return time.waiting;
    case Limit::memory:
      break;
  }
  return time.memory;
}

/// Collectives one after the other.
struct Sequence {
  double seconds = 0, edge = 0;  // edge: time of the one during which nothing computes
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

/// Adds the collectives of a pass, which run beside it, and its stalls.
StepTime pass_time(double compute, const Sequence& sent, const std::vector<Stall>& stalls, const ClusterRates& rates) {
  StepTime time;
  for (const Stall& stall : stalls) {
    const CollectiveTime one = collective_time(stall.collective, rates);
    time.add(one.limit, static_cast<double>(stall.times) * one.seconds);
  }
  const double beside = sent.seconds - sent.edge;
  part_of(time, beside > compute ? sent.limit : Limit::compute) += std::max(beside, compute);
  part_of(time, sent.limit) += sent.edge;
  return time;
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
    case Limit::waiting:
      return "waiting for stages";
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
  return {.seconds = rates.start.value + sent_bytes(collective) / rate + (is_all_reduce ? std::min(ring, tree) : ring),
          .limit = is_between ? Limit::between_hosts : Limit::inside_host};
}

double sent_bytes(const Collective& collective) {
  const auto bytes = static_cast<double>(collective.bytes), ranks = static_cast<double>(collective.ranks);
  if (collective.ranks <= 1) return 0;
  if (collective.kind == Collective::Kind::transfer) return bytes;
  return (collective.kind == Collective::Kind::all_reduce ? 2 : 1) * bytes * (ranks - 1) / ranks;
}

double sent_bytes(const StepWork& work) {
  double bytes = 0;
  const auto add = [&](const std::vector<Collective>& collectives, int64_t times) {
    for (const Collective& one : collectives) bytes += static_cast<double>(times) * sent_bytes(one);
  };
  const auto add_stalls = [&](const std::vector<Stall>& stalls) {
    for (const Stall& one : stalls) bytes += static_cast<double>(work.passes * one.times) * sent_bytes(one.collective);
  };
  add_stalls(work.in_forward_stalls);
  add_stalls(work.in_backward_stalls);
  add(work.in_forward, work.passes);
  add(work.in_backward, work.passes);
  add(work.in_last_backward, 1);
  add(work.after_update, 1);
  return bytes;
}

void StepTime::add(const StepTime& more, double times) noexcept {
  compute += times * more.compute;
  between_hosts += times * more.between_hosts;
  inside_host += times * more.inside_host;
  memory += times * more.memory;
  waiting += times * more.waiting;
}

void StepTime::add(Limit limit, double seconds) noexcept { part_of(*this, limit) += seconds; }

Limit StepTime::limit() const noexcept {
  const double most = std::max({compute, between_hosts, inside_host, memory, waiting});
  if (most == compute) return Limit::compute;
  if (most == between_hosts) return Limit::between_hosts;
  if (most == inside_host) return Limit::inside_host;
  return most == memory ? Limit::memory : Limit::waiting;
}

PassesTime passes_time(const StepWork& work, const ClusterRates& rates) {
  std::vector<Collective> last = work.in_backward;
  last.insert(last.end(), work.in_last_backward.begin(), work.in_last_backward.end());
  const double forward = work.forward_flops / rates.compute.reached(),
               backward = work.backward_flops / rates.compute.reached();
  const auto backward_beside = [&](const std::vector<Collective>& sent) {
    return pass_time(backward, sequence_of(sent, Edge::last, rates), work.in_backward_stalls, rates);
  };
  return {
      .forward = pass_time(forward, sequence_of(work.in_forward, Edge::first, rates), work.in_forward_stalls, rates),
      .backward = backward_beside(work.in_backward),
      .last_backward = backward_beside(last)};
}

StepTime time_besides(const StepWork& work, const ClusterRates& rates) {
  StepTime time;
  const Sequence after = sequence_of(work.after_update, Edge::last, rates);
  time.add(after.limit, after.seconds);
  time.memory = (static_cast<double>(work.passes) * work.pass_bytes + work.update_bytes) / rates.memory.reached();
  return time;
}

StepTime step_time(const StepWork& work, const ClusterRates& rates) {
  const PassesTime pass = passes_time(work, rates);
  const auto passes = static_cast<double>(work.passes);
  StepTime time = time_besides(work, rates);
  time.add(pass.forward, passes);
  time.add(pass.backward, passes - 1);
  time.add(pass.last_backward);
  return time;
}

}  // namespace gputrain::app
