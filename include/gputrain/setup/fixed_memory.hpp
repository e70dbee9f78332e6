// What a rank holds on its device as long as it trains, to the byte.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

struct FixedMemory {
  int64_t parameters = 0;
  int64_t working_copy = 0;  // of them, in 16 bits
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t buffers = 0;  // running statistics

  int64_t total() const noexcept { return parameters + working_copy + gradients + optimizer_state + buffers; }
  /// "weights 10 MiB and 16-bit copy 5 MiB  grads 10 MiB  optimizer 20 MiB"
  std::string text() const;
};

FixedMemory fixed_memory(const BuiltModel& built, const Updates& updates);

/// One micro-batch as the loader keeps it in host memory, and how many of them it keeps.
int64_t batch_bytes(const data::Dataset& dataset, int64_t micro_batch);
int64_t batches_ahead(const JobSpec& spec, const train::BatchPlan& batch);

}  // namespace gputrain::app
