// What train.micro_batch_size: auto stands for, and how that was found out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

struct MicroBatchTrial {
  int64_t micro_batch = 0;
  double samples_per_second = 0;  // of the slowest rank
  int64_t peak_bytes = 0;         // of tensors, on the rank that has most
  std::string misfit;             // why it does not fit; empty: it does
};

struct MicroBatchChoice {
  int64_t micro_batch = 0;
  std::vector<MicroBatchTrial> trials;  // smallest first; empty: an earlier attempt of the run has found it
  std::string found_for;                // tells apart jobs, ranks and devices that need another one
  double seconds = 0;

  std::string text() const;
  nlohmann::json to_json() const;
};

/// Of trials that fit the fastest; the smallest of those that are as fast within the clock's uncertainty.
int64_t fastest(const std::vector<MicroBatchTrial>& trials);

}  // namespace gputrain::app
