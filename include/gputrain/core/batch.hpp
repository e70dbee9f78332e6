// What a loader hands to a model: one micro-batch and the numbers that make its loss exact.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace c10 {
struct Event;
}

namespace gputrain {

/// Targets with this value are not learned from and not counted: padding, bad samples, masked tokens.
inline constexpr int64_t kIgnoreIndex = -100;

struct Batch {
  at::Tensor inputs;                 // images: [batch, channels, height, width] float; tokens: [batch, time] int64
  at::Tensor targets;                // int64 [batch] or [batch, time]; kIgnoreIndex where nothing is learned
  int64_t samples = 0;               // samples that are not padding
  int64_t samples_on_all_ranks = 0;  // of this micro-batch
  int64_t weight = 0;                // targets that count (samples, or unmasked tokens); may be 0
  /// Of a copy to the device that is under way; null: the tensors are there.
  std::shared_ptr<const c10::Event> arrival = nullptr;
};

}  // namespace gputrain
