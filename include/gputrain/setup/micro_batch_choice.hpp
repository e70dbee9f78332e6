// The result of train.micro_batch_size: auto, and how it was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

struct MicroBatchTrial {
  int64_t micro_batch = 0;
  double samples_per_second = 0;  // on the slowest rank
  int64_t peak_bytes = 0;         // of tensors, on the rank that needs most
  std::string misfit;             // why it does not fit; empty: it fits
};

struct MicroBatchChoice {
  int64_t micro_batch = 0;
  std::vector<MicroBatchTrial> trials;  // smallest first; empty: an earlier attempt of the run found the size
  std::string found_for;                // hash of the job, ranks and devices that the choice is for
  double seconds = 0;

  std::string text() const;
  nlohmann::json to_json() const;
};

/// The smallest micro-batch that fits and whose speed is within the measurement error of the fastest one; 0: none fits.
int64_t fastest(const std::vector<MicroBatchTrial>& trials);

}  // namespace gputrain::app
