// How the ranks' gradients meet: in which pieces, as what, and what that sends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/job/job_spec.hpp"
#include "gputrain/parallel/data_parallel.hpp"

namespace gputrain::app {

struct Reduction {
  parallel::BucketLimits buckets;
  std::string bucket_reason;  // "auto: ..."; empty where the job says
  bool is_measured = false;   // the buckets' size: a resumed run keeps it, for sums are rounded by where they stand
  std::optional<at::ScalarType> wire_type;
  std::unique_ptr<parallel::PowerSgd> power_sgd;  // null unless gradients are compressed by it

  parallel::ReductionOptions options(const std::vector<device::Range>& owners) const;

  /// What a checkpoint's state says of it.
  void note(nlohmann::json& state) const;
  /// Of power_sgd's part of a checkpoint, what this rank writes: its errors, and rank 0 the factors.
  checkpoint::Shard shard(const comm::ProcessGroups& groups) const;
  /// Takes up what is this job's. Errors of another number of ranks, or beside other factors, or in another memory
  /// order, belong to none: that compression starts anew is told.
  void restore(const checkpoint::Checkpoint& from, const comm::ProcessGroups& groups);
};

/// Every rank must call.
Reduction plan_reduction(const JobSpec& spec, comm::ProcessGroups& groups, const device::Arena& arena);

/// "25 MiB a step instead of 50 MiB, gradients as fp16  3 buckets of at most 16 MiB (auto: ...)"
std::string describe(const Reduction& reduction, const device::Arena& arena, const parallel::Traffic& one_step);

}  // namespace gputrain::app
