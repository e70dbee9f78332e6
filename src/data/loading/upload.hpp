#pragma once

#include <c10/core/Stream.h>

#include "gputrain/data/batch.hpp"

namespace gputrain::data {

/// Copier with a stream of its own. Not thread-safe.
class Uploader {
 public:
  explicit Uploader(at::Device device);

  /// Returns the batch on the device; its values are valid once `arrival` has completed.
  Batch start(const Batch& host) const;

 private:
  c10::Stream stream_;
};

}  // namespace gputrain::data
