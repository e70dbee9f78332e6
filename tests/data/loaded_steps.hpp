// Helpers for loader tests: request steps and compare the results.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/data/loader.hpp"

namespace gputrain::data {

inline std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

inline std::vector<int64_t> counted_targets(const StepData& step) {
  std::vector<int64_t> all;
  for (const Batch& batch : step.micro_batches)
    for (const int64_t target : values(batch.tensor(kTarget)))
      if (target != kIgnoreIndex) all.push_back(target);
  return all;
}

inline LoaderOptions options_for(int64_t global_batch, int64_t micro_batch, int workers = 0) {
  LoaderOptions options;
  options.partition = {.global_batch = global_batch, .micro_batch = micro_batch};
  options.seed = 17;
  options.num_workers = workers;
  return options;
}

}  // namespace gputrain::data
