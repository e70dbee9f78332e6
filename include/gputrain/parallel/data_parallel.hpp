// Data parallelism: adds up the arena's gradients over the ranks, bucket by bucket, while backward still runs.
//
//   parallel.prepare(last_micro_batch);
//   loss.backward();                      // loss sum * scale / total over all ranks and micro-batches
//   if (last_micro_batch) parallel.finish();
//
// A bucket is a stretch of the arena: neighbouring units up to a byte limit, from the last unit to the first, which is
// the order in which backward completes them. A bucket starts when all its gradients are there and the bucket before it
// has started; so every rank starts the same ones in the same order, whatever its own order of completion.
//
// Where ranks share out the optimizer's state (ZeRO stage 1: Rajbhandari et al., "ZeRO: memory optimizations toward
// training trillion parameter models", SC 2020), each owns a stretch of the arena: the sum of a gradient goes to its
// owner alone, which updates the values and gives them to the others. That moves as many bytes as adding up everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

struct BucketLimits {
  int64_t bytes = int64_t{25} << 20;
  int64_t first_bytes = int64_t{1} << 20;  // small, so that the wires are busy early
};

/// The buckets of an arena in the order they start; together they cover it. A unit above the limit has its own.
std::vector<device::Range> plan_buckets(const device::Arena& arena, const BucketLimits& limits);

/// Cuts an arena into one stretch per rank, equal up to a few tensors: bounds lie at multiples of 128 bytes, and never
/// within a tensor that is not in row-major order. Together they cover it; some may be empty.
std::vector<device::Range> plan_shards(const device::Arena& arena, int ranks);

class DataParallel {
 public:
  /// `parameters` are the arena's residents, in any order. `owners`: each rank's stretch where they share out the
  /// optimizer's state; empty: each rank updates everything. Alone, nothing is hooked and every call returns at once.
  DataParallel(comm::ProcessGroups& groups, const device::Arena& arena, const std::vector<at::Tensor>& parameters,
               const BucketLimits& limits = {}, std::vector<device::Range> owners = {});
  ~DataParallel();  // takes the hooks off
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Before every micro-batch's backward: whether this one, the last of the step, adds up over the ranks.
  void prepare(bool synchronise);

  /// After the backward that was prepared to synchronise: starts what did not start by itself, because a parameter was
  /// not used, and waits for all. Afterwards the gradients are the sum over ranks on each of them, or each owner's
  /// stretch is on the owner and the others hold anything.
  void finish();

  /// Whether each rank has only its part of the gradient after finish().
  bool shares() const noexcept;
  /// Adds a small tensor up over the ranks, in place.
  void add_up(const at::Tensor& tensor);

  /// After the update: gives every rank the values that others own.
  void publish();

  int64_t buckets() const noexcept;
  /// Buckets under way or done since prepare(true); before finish(), those that overlap with backward.
  int64_t started() const noexcept;

 private:
  class Reduction;
  std::unique_ptr<Reduction> reduction_;  // null: alone
};

}  // namespace gputrain::parallel
