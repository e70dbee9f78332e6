// Cost model of one training step: operations, traffic and updates, and how long they take at given rates.
//
// It is arithmetic, not a simulation: communication that may overlap with computation counts only if it takes longer.
// Left out: the loader, pauses between kernels, and the share of the GPU's own units that collectives use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::app {

/// Constant of the cost model.
struct Constant {
  double value = 0;
  double share = 1;    // share of the value that is reached
  std::string origin;  // "measured, bench.json"; "published, DGX H100"; "assumed"

  double reached() const noexcept { return value * share; }
};

/// Rates of one GPU and its links, in bytes per second and direction, and seconds.
struct ClusterRates {
  std::string gpus;  // "h100"
  int64_t ranks_per_host = 8;
  Constant compute;                          // floating-point operations per second
  Constant memory;                           // bytes read and written per second
  Constant inside, between;                  // links to GPUs of the same host; to other hosts
  Constant inside_latency, between_latency;  // seconds of one hop
  Constant start;                            // seconds to start a collective, whatever its size
};

/// Resource that takes a part of a step.
enum class Limit { compute, between_hosts, inside_host, memory, waiting };
/// Returns "compute", "wire between hosts", "wire inside a host", "memory traffic" or "waiting for stages".
const char* name_of(Limit limit);

struct Collective {
  enum class Kind { all_reduce, all_gather, reduce_scatter, transfer } kind = Kind::all_reduce;
  int64_t bytes = 0;   // size of the whole tensor
  int64_t ranks = 1;   // number of ranks that take part
  int64_t stride = 1;  // distance from one of them to the next
};

/// Seconds of a collective in a ring, and the link that limits it. Each of n ranks sends 2 (n - 1) / n of the tensor in
/// an all-reduce, (n - 1) / n in an all-gather or a reduce-scatter (Patarasuk and Yuan, "Bandwidth optimal all-reduce
/// algorithms for clusters of workstations", 2009). The ranks of a host use as many rings, which share its adapters: a
/// rank's rate is that of NVLink or of all adapters of the host, whichever is lower. A transfer goes to one other rank
/// in one hop, with one adapter per rank. Latency of the others: n - 1 hops; for an all-reduce, twice that or twice the
/// depth of a tree (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
/// 2009), whichever is less, as in NCCL's own model (src/graph/tuning.cc).
struct CollectiveTime {
  double seconds = 0;
  Limit limit = Limit::inside_host;
};
CollectiveTime collective_time(const Collective& collective, const ClusterRates& rates);

/// Returns the bytes that each rank sends.
double sent_bytes(const Collective& collective);

/// Collective that occurs `times` times in a pass, while nothing computes.
struct Stall {
  Collective collective;
  int64_t times = 1;
};

/// Work of one rank in a step, or in its part of a step.
struct StepWork {
  int64_t passes = 1;                                                  // micro-batches
  double forward_flops = 0, backward_flops = 0;                        // operations of each pass, with recomputation
  std::vector<Stall> in_forward_stalls = {}, in_backward_stalls = {};  // stalls of each pass
  double pass_bytes = 0;                          // other memory traffic of each pass: gradients, recomputed norms
  double update_bytes = 0;                        // memory traffic of the optimizer
  std::vector<Collective> in_forward;             // collectives of each pass, in order
  std::vector<Collective> in_backward;            // collectives of each pass
  std::vector<Collective> in_last_backward = {};  // additional ones of the last pass
  std::vector<Collective> after_update;
};

/// Returns the bytes that each rank sends in the step.
double sent_bytes(const StepWork& work);

/// Time of a step by its limits.
struct StepTime {
  double compute = 0, between_hosts = 0, inside_host = 0, memory = 0;
  double waiting = 0;  // time in which a stage waits for others

  double total() const noexcept { return compute + between_hosts + inside_host + memory + waiting; }
  void add(const StepTime& more, double times = 1) noexcept;
  void add(Limit limit, double seconds) noexcept;
  /// Returns the limit that takes the most time.
  Limit limit() const noexcept;
};

/// Times of one micro-batch.
struct PassesTime {
  StepTime forward, backward;
  StepTime last_backward;  // time of the last micro-batch
};
PassesTime passes_time(const StepWork& work, const ClusterRates& rates);

/// Returns the time for memory traffic of the passes and of the update, and for collectives after it.
StepTime time_besides(const StepWork& work, const ClusterRates& rates);

/// Computes the time of a step. A pass takes as long as its computation or its collectives, whichever is longer, which
/// is also its limit; its stalls and its first or last collective, during which nothing computes, are added.
StepTime step_time(const StepWork& work, const ClusterRates& rates);

}  // namespace gputrain::app
