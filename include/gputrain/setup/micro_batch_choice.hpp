// Result of train.micro_batch_size: auto, with its trials.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

struct MicroBatchTrial {
  int64_t micro_batch = 0;
  double samples_per_second = 0;  // rate of the slowest rank
  int64_t peak_bytes = 0;         // peak of tensors, on the rank that needs most
  std::string misfit;             // reason why it does not fit; empty: it fits
};

struct MicroBatchChoice {
  int64_t micro_batch = 0;
  std::vector<MicroBatchTrial> trials;  // trials, smallest first; empty: an earlier attempt of the run found the size
  std::string found_for;                // hash of the job, ranks and devices of the choice
  double seconds = 0;

  std::string text() const;
  nlohmann::json to_json() const;
};

/// Returns the smallest micro-batch that fits and is as fast as the fastest within the measurement error; 0: none fits.
int64_t fastest(const std::vector<MicroBatchTrial>& trials);

}  // namespace gputrain::app
