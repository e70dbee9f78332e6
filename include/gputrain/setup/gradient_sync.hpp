// Reduction of gradients over ranks: buckets, dtype on the wire, bytes sent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/job/job_spec.hpp"
#include "gputrain/parallel/data_parallel.hpp"

namespace gputrain::app {

struct GradientSync {
  device::JoinLimits buckets;
  std::string bucket_reason;  // "auto: ..."; empty if the job sets the size
  bool is_measured = false;   // true for the bucket size: a resumed run keeps it, because rounding depends on it
  std::optional<at::ScalarType> wire_type;

  parallel::ReducerOptions options(const std::vector<device::Shard>& owners,
                                   parallel::ShardedParameters* sharded = nullptr) const;

  /// Adds the fields for a checkpoint's state.
  void note(nlohmann::json& state) const;
  /// Restores the fields that fit this job.
  void restore(const checkpoint::Checkpoint& from, const comm::ProcessGroups& groups);
};

/// Returns the size of buckets that the job sets, or the default.
device::JoinLimits bucket_limits(const train::ParallelSpec& spec);

/// Plans the reduction. Every rank must call.
GradientSync plan_gradient_sync(const JobSpec& spec, comm::ProcessGroups& groups, const device::Arena& arena);

/// Returns "25 MiB a step instead of 50 MiB, gradients as fp16  3 buckets of 16 MiB (auto: ...)".
std::string describe(const GradientSync& gradient_sync, const device::Arena& arena,
                     const parallel::GradientTraffic& one_step);

}  // namespace gputrain::app
