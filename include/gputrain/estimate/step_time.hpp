// A cost model of one training step: what is computed, sent and updated, and how long that takes at given rates.
//
// It is arithmetic, not a simulation: communication that may run beside computation counts where it takes longer than
// that. Not in it: the loader, pauses between kernels, and what collectives take from the GPU's own units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::app {

/// A constant of the cost model.
struct Constant {
  double value = 0;
  double share = 1;    // that is reached of it
  std::string origin;  // "measured, bench.json"; "published, DGX H100"; "assumed"

  double reached() const noexcept { return value * share; }
};

/// Rates of one GPU and its links. Bytes per second, one direction; seconds.
struct ClusterRates {
  std::string gpus;  // "h100"
  int64_t ranks_per_host = 8;
  Constant compute;                          // floating-point operations per second
  Constant memory;                           // bytes read and written per second
  Constant inside, between;                  // to GPUs of the same host; to other hosts
  Constant inside_latency, between_latency;  // of one hop
  Constant start;                            // of a collective, whatever its size
};

/// What takes a part of a step.
enum class Limit { compute, between_hosts, inside_host, memory, waiting };
/// "compute", "wire between hosts", "wire inside a host", "memory traffic", "waiting for stages".
const char* name_of(Limit limit);

struct Collective {
  enum class Kind { all_reduce, all_gather, reduce_scatter, transfer } kind = Kind::all_reduce;
  int64_t bytes = 0;   // of the whole tensor
  int64_t ranks = 1;   // among which it goes
  int64_t stride = 1;  // from one of them to the next
};

/// Seconds of a collective in a ring, and the link that limits it. Bytes: of n ranks each sends 2 (n - 1) / n of the
/// tensor in an all-reduce, (n - 1) / n in an all-gather or a reduce-scatter (Patarasuk and Yuan, "Bandwidth optimal
/// all-reduce algorithms for clusters of workstations", 2009). As many rings as a host has ranks share its adapters, so
/// a rank's rate is that of NVLink or of all adapters of the host, whichever is lower. A transfer is of one rank to the
/// next one, in one hop; every rank of a host has an adapter for it. Latency of the others: n - 1 hops, twice that
/// for an all-reduce, or the depth of a tree (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
/// broadcast, reduction and scan", 2009), whichever is less, as in NCCL's own model (src/graph/tuning.cc).
struct CollectiveTime {
  double seconds = 0;
  Limit limit = Limit::inside_host;
};
CollectiveTime collective_time(const Collective& collective, const ClusterRates& rates);

/// Bytes that each rank sends.
double sent_bytes(const Collective& collective);

/// A collective that comes so often in a pass, beside which nothing computes.
struct Stall {
  Collective collective;
  int64_t times = 1;
};

/// One step of one rank, or its part of a step.
struct StepWork {
  int64_t passes = 1;                                                  // micro-batches
  double forward_flops = 0, backward_flops = 0;                        // of each pass, with what is computed again
  std::vector<Stall> in_forward_stalls = {}, in_backward_stalls = {};  // of each pass
  double pass_bytes = 0;                // memory traffic of each pass besides: gradients, norms computed again
  double update_bytes = 0;              // memory traffic of the optimizer
  std::vector<Collective> in_forward;   // of each pass, in order
  std::vector<Collective> in_backward;  // of each pass
  std::vector<Collective> in_last_backward = {};  // of the last pass alone
  std::vector<Collective> after_update;
};

/// Bytes that each rank sends in the step.
double sent_bytes(const StepWork& work);

/// Where the time of a step goes.
struct StepTime {
  double compute = 0, between_hosts = 0, inside_host = 0, memory = 0;
  double waiting = 0;  // of a stage for others

  double total() const noexcept { return compute + between_hosts + inside_host + memory + waiting; }
  void add(const StepTime& more, double times = 1) noexcept;
  void add(Limit limit, double seconds) noexcept;
  /// The largest.
  Limit limit() const noexcept;
};

/// Of one micro-batch.
struct PassesTime {
  StepTime forward, backward;
  StepTime last_backward;  // of the last micro-batch
};
PassesTime passes_time(const StepWork& work, const ClusterRates& rates);

/// Memory traffic of the passes and of the update, and collectives after it.
StepTime time_besides(const StepWork& work, const ClusterRates& rates);

/// A forward or backward pass takes as long as its computation or its collectives, whichever is longer, and besides the
/// first or last collective, beside which nothing computes. All of it counts for what takes longer.
StepTime step_time(const StepWork& work, const ClusterRates& rates);

}  // namespace gputrain::app
