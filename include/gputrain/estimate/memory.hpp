// Memory of a rank at the peak of a step, measured or predicted, and settings that lower it.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "gputrain/core/error.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Bytes at the peak of a step beyond fixed memory: a line through the last two measured or predicted micro-batches.
struct Activations {
  bool is_predicted = false;  // no step was taken
  int64_t measured_samples = 0;
  int64_t measured_bytes = 0;
  int64_t bytes_per_sample = 0;  // too high for logits that are computed in parts

  /// Adds a point to the line. `samples` is more than at the last call.
  void measure(int64_t samples, int64_t bytes) noexcept;
  int64_t bytes(int64_t samples) const noexcept {
    return measured_bytes + bytes_per_sample * (samples - measured_samples);
  }
};

/// Activations on the device, and those that wait in the host's memory.
struct PlacedActivations {
  Activations on_device, on_host;
};

struct Memory {
  FixedMemory fixed;
  Activations activations;
  Activations offloaded = {};  // in the host's memory: not in total()
  int64_t micro_batch = 0;
  int64_t data = 0;        // batches read ahead, if they are in the same memory
  int64_t limit = 0;       // 0: not known
  bool evaluates = false;  // the activations may be those of an evaluation

  void place(const PlacedActivations& placed) { activations = placed.on_device, offloaded = placed.on_host; }
  int64_t total(int64_t samples) const noexcept { return fixed.total() + data + activations.bytes(samples); }
  int64_t total() const noexcept { return total(micro_batch); }
  int64_t on_host() const noexcept { return fixed.state_on_host + offloaded.bytes(micro_batch); }
  bool fits() const noexcept { return limit == 0 || total() <= limit; }
};

/// Lists settings that lower memory use, as a hint: smallest change of results first, then largest saving.
std::string memory_remedies(const Job& job, const TrainingSetup& setup, const Memory& memory);

/// Returns the error to report if `failure` is a shortage of memory, else nothing. `setup` is null if it was not built
/// yet. `when` names the activity: "in step 12".
std::optional<Error> out_of_memory_error(const std::exception& failure, const Job& job, const TrainingSetup* setup,
                                         const std::string& when);

}  // namespace gputrain::app
