// What a loader gives to a model: one micro-batch and the counts that make its loss exact.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace c10 {
struct Event;
}

namespace gputrain {

/// The loss ignores targets with this value: padding, bad samples, masked tokens.
inline constexpr int64_t kIgnoreIndex = -100;

struct Batch {
  at::Tensor inputs;                 // images: [batch, channels, height, width] float; tokens: [batch, time] int64
  at::Tensor targets;                // int64 [batch] or [batch, time]; the loss ignores kIgnoreIndex
  int64_t samples = 0;               // samples without padding
  int64_t samples_on_all_ranks = 0;  // the same, summed over all ranks
  int64_t weight = 0;                // targets that count (samples, or unmasked tokens); may be 0
  /// Event of an unfinished copy to the device; null if the tensors are ready.
  std::shared_ptr<const c10::Event> arrival = nullptr;
};

}  // namespace gputrain
