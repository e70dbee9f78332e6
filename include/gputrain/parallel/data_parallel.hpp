// Data parallelism: sums the arena's gradients over the ranks, bucket by bucket, while backward still runs.
//
//   for (every micro-batch) {
//     parallel.prepare(is_last);
//     loss.backward();  // loss sum * scale / total over all ranks and micro-batches
//     parallel.finish();
//   }
//
// A bucket is a range of the arena: neighbouring units up to a byte limit, from the last unit to the first, which is
// the order in which backward completes them. A bucket starts when all its gradients are ready and the bucket before it
// has started. So every rank starts the same buckets in the same order, in whatever order its gradients complete.
//
// If ranks shard the optimizer state (ZeRO stage 1: Rajbhandari et al., "ZeRO: memory optimizations toward training
// trillion parameter models", SC 2020), each owns a shard of the arena: a gradient's sum goes only to its owner, which
// updates the values; then all gather them. That transfers as many bytes as an all-reduce. If each bucket is split
// equally among the ranks, it is one reduce-scatter and one all-gather; otherwise, each owner has a reduce and a
// broadcast of its own.
//
// If they also shard the gradients (stage 2), a bucket has memory only from its first gradient until its sum is with
// the owners, which add it to their shards. This happens in every micro-batch, so each of them transfers all gradients.
// Few buckets have memory at a time, unless a parameter is unused: the buckets after it wait for finish().
//
// If they also shard the parameters (stage 3, sharded_parameters.hpp), a bucket is a part of one unit.
//
// If the ranks are several replicas (hybrid sharding: Zhao et al., "PyTorch FSDP", VLDB 2023), all of that happens
// within each of them. In the last micro-batch, each owner then all-reduces with those of the other replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/parallel/buckets.hpp"

namespace torch::autograd {
struct Node;
}

namespace gputrain::parallel {

class ShardedParameters;

struct ReducerOptions {
  device::JoinLimits buckets = {};
  /// Each rank's shard, if ranks shard the optimizer state; empty: each rank updates everything. Gradients are sharded
  /// if the arena keeps only the owned ones.
  std::vector<device::Shard> owners = {};
  /// A narrower type for sending gradients; they are divided by the number of ranks, so that sums stay in its range.
  std::optional<at::ScalarType> wire_type = {};
  ShardedParameters* parameters = nullptr;  // null unless ranks share out the values too; must outlive this
};

/// The bytes that a rank sends on average in one step. Each of n ranks sends (n - 1) / n of a tensor that is reduced to
/// its owners or broadcast, and twice that in an all-reduce. With several replicas, n is the number of shards, and each
/// rank all-reduces its shard's gradient with the other replicas.
struct GradientTraffic {
  int64_t bytes = 0;
  int64_t full_bytes = 0;  // without compression
};

/// Returns the traffic of a step with `passes` micro-batches. Each sends all gradients if these are sharded.
GradientTraffic traffic_of_step(const device::Arena& arena, const ReducerOptions& options, const comm::Mesh& mesh,
                                int64_t passes);

class DataParallel {
 public:
  /// `parameters` are those in the arena, in any order. On a single rank, there are no hooks and calls return at once.
  DataParallel(comm::ProcessGroups& groups, const device::Arena& arena, const std::vector<at::Tensor>& parameters,
               ReducerOptions options = {});
  ~DataParallel();  // removes the hooks
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Call before backward of every micro-batch. `is_last`: after this micro-batch, the step's last, gradients are
  /// summed over the ranks. Every rank must have the same number of micro-batches.
  void prepare(bool is_last);

  /// Says, between prepare(true) and finish(), whether no more micro-batches follow for the units of the next backward
  /// passes, which go through different units.
  void expect(bool are_last) noexcept { expects_ = are_last; }

  /// Call after that backward, or instead of it if the rank has nothing to compute. Starts the buckets that an unused
  /// parameter held back, and waits for all. After the last micro-batch, each rank has the sum over ranks; with
  /// sharding, only its shard of the sum is valid.
  void finish();

  /// Call after a micro-batch or an all_gather_values() that failed: waits for running collectives and discards them.
  /// prepare() also does this.
  void abandon();

  /// Returns whether each rank has only its shard of the gradient after finish().
  bool shares() const noexcept { return !options_.owners.empty(); }
  /// Returns whether a rank has only a part of the gradient after finish(): its shard, or that of its part of the
  /// model.
  bool has_parts() const noexcept { return shares() || layers_.size() > 1 || stages_.size() > 1; }
  /// Makes the sum of squares of this rank's part that of all parts, in place: a 0-dim double tensor.
  void all_reduce_squares(const at::Tensor& sum);

  /// Call after the update: every rank gets the values that others own, or, with sharded parameters, will gather them
  /// anew.
  void all_gather_values();

  int64_t buckets() const noexcept { return std::ssize(buckets_); }
  /// Buckets started since prepare(); before finish(), those that overlap with backward.
  int64_t started() const noexcept { return static_cast<int64_t>(next_); }

 private:
  struct Bucket {
    device::Range range;
    int64_t tensors = 0;       // with a hook
    int64_t waiting = 0;       // hooked tensors without a gradient yet
    at::Tensor gradient = {};  // [range.size()]: the arena's, or its own memory while needed
    at::Tensor sent = {};      // `gradient`, or a copy in a narrower type; defined while in flight
    std::vector<comm::Pending> under_way = {};
    at::Tensor across = {};  // in flight between replicas: this rank's part of the sum, or a copy in a narrower type
    comm::Pending under_way_across = {};
  };
  struct ReadyHook;

  bool splits_equally() const noexcept { return !arena_.parts().empty(); }
  bool shares_gradients() const noexcept { return arena_.keeps_owned_gradients_only(); }
  void hook(const at::Tensor& parameter);
  void take(const at::Tensor& parameter, const device::Segment& segment, Bucket& bucket);
  void give_memory(Bucket& bucket);
  void gradient_is_there(size_t index);
  void start_next();
  void send(Bucket& bucket, const std::string& name);
  void complete(Bucket& bucket);
  at::Tensor own_sum(const Bucket& bucket) const;
  void send_across(Bucket& bucket);
  void complete_across(Bucket& bucket);
  void complete_gathering();

  comm::Group& group_;     // the ranks among which the sums of a bucket are shared out; without shards, all
  comm::Group& replicas_;  // ranks with the same shard
  comm::Group& layers_;    // ranks that share layers
  comm::Group& stages_;    // ranks with the other stages of a pipeline
  const device::Arena& arena_;
  ReducerOptions options_;
  std::vector<Bucket> buckets_;           // empty on a single rank
  std::vector<comm::Pending> gathering_;  // in flight: the owners' values
  at::Tensor ranks_, all_ranks_;          // [1], with a wire type: how many are in the group, and in all replicas
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, uintptr_t>> hooked_;
  size_t next_ = 0;  // next bucket to start
  bool synchronising_ = false, is_last_ = false, expects_ = true;
};

}  // namespace gputrain::parallel
