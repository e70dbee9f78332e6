// Micro-batches on their way to a GPU, beside what it computes.
#pragma once

#include <c10/core/Stream.h>

#include "gputrain/core/batch.hpp"

namespace gputrain::data {

/// Copies on a stream beside the one that computes. For one thread.
class Uploader {
 public:
  explicit Uploader(at::Device device);

  /// The batch on the device, its tensors defined from `arrival` on.
  Batch start(const Batch& host) const;

 private:
  c10::Stream stream_;
};

}  // namespace gputrain::data
