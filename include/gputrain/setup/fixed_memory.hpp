// Exact memory that a rank keeps on its device during the whole training.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct FixedMemory {
  int64_t parameters = 0;    // trainable parameters
  int64_t borrowed = 0;      // parameters of the first stage that the last one uses too, with their gradient
  int64_t frozen = 0;        // parameters that are not trained; if ranks share them out, this rank's share
  int64_t working_copy = 0;  // 16-bit copy of parameters
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t state_on_host = 0;  // more of it, in the host's memory: not in total()
  int64_t buffers = 0;        // running statistics

  int64_t weights() const noexcept { return parameters + frozen + buffers; }
  int64_t total() const noexcept { return weights() + borrowed + working_copy + gradients + optimizer_state; }
  int64_t with_host() const noexcept { return total() + state_on_host; }  // what it takes on a CPU
  /// Returns "weights 10 MiB and 16-bit copy 5 MiB  grads 10 MiB  optimizer 20 MiB".
  std::string text() const;
};

FixedMemory fixed_memory(const BuiltModel& built, const OptimizerStack& optimizer_stack);

/// Returns the bytes of one micro-batch in host memory, or the number of micro-batches that the loader keeps there.
int64_t batch_bytes(const data::Dataset& dataset, int64_t micro_batch);
int64_t batches_ahead(const JobSpec& spec, const train::BatchPlan& batch);

}  // namespace gputrain::app
