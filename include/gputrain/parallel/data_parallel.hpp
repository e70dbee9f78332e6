// Data parallelism: adds up the arena's gradients over the ranks, bucket by bucket, while backward still runs.
//
//   for (every micro-batch) {
//     parallel.prepare(is_last);
//     loss.backward();  // loss sum * scale / total over all ranks and micro-batches
//     parallel.finish();
//   }
//
// A bucket is a stretch of the arena: neighbouring units up to a byte limit, from the last unit to the first, which is
// the order in which backward completes them. A bucket starts when all its gradients are there and the bucket before it
// has started; so every rank starts the same ones in the same order, whatever its own order of completion.
//
// Where ranks share out the optimizer's state (ZeRO stage 1: Rajbhandari et al., "ZeRO: memory optimizations toward
// training trillion parameter models", SC 2020), each owns a stretch of the arena: the sum of a gradient goes to its
// owner alone, which updates the values and gives them to the others. That moves as many bytes as adding up everywhere.
//
// Where they share out the gradients too (stage 2), a bucket has memory only from its first gradient until its sum is
// with the owners, which add it to what they keep. That happens for every micro-batch, and so moves as many times the
// bytes. Few buckets have memory at one time, unless a parameter is not used: those after it wait for finish().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/parallel/buckets.hpp"
#include "gputrain/parallel/power_sgd.hpp"

namespace gputrain::parallel {

struct ReductionOptions {
  BucketLimits buckets = {};
  /// Each rank's stretch where they share out the optimizer's state; empty: each rank updates everything. Gradients are
  /// shared out where the arena keeps the owned ones only.
  std::vector<device::Range> owners = {};
  /// A narrower type that gradients travel in, divided by the number of ranks, so that sums stay in its range.
  std::optional<at::ScalarType> wire_type = {};
  PowerSgd* power_sgd = nullptr;  // compresses them, where each rank updates everything; outlives the reduction
};

/// What a rank has sent in steps, on average, by what was handed to collectives: of n ranks each sends (n - 1) / n of a
/// tensor that is added up at its owners or given to all, and twice that of one that is added up everywhere.
struct Traffic {
  int64_t bytes = 0;
  int64_t full_bytes = 0;  // had nothing been compressed
  int64_t steps = 0;
};

class DataParallel {
 public:
  /// `parameters` are the arena's residents, in any order. Alone, nothing is hooked and every call returns at once.
  DataParallel(comm::ProcessGroups& groups, const device::Arena& arena, const std::vector<at::Tensor>& parameters,
               ReductionOptions options = {});
  ~DataParallel();  // takes the hooks off
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Before every micro-batch's backward: whether it is the step's last, after which the gradients are added up over
  /// the ranks. Every rank has as many micro-batches.
  void prepare(bool is_last);

  /// After that backward, or in its place where a rank has nothing to compute. Starts what did not start by itself,
  /// because a parameter was not used, and waits for all. After the last micro-batch each rank has the sum over ranks,
  /// or its owned stretch of it and elsewhere anything.
  void finish();

  /// After a micro-batch or a publish() that failed: waits for what is under way, and forgets it. prepare() does so
  /// too.
  void abandon();

  /// Whether each rank has only its part of the gradient after finish().
  bool shares() const noexcept;
  /// Adds a small tensor up over the ranks, in place.
  void add_up(const at::Tensor& tensor);

  /// After the update: gives every rank the values that others own.
  void publish();

  int64_t buckets() const noexcept;
  /// Buckets under way or done since prepare(); before finish(), those that overlap with backward.
  int64_t started() const noexcept;
  Traffic traffic() const noexcept;

 private:
  class Reduction;
  std::unique_ptr<Reduction> reduction_;  // null: alone
};

}  // namespace gputrain::parallel
