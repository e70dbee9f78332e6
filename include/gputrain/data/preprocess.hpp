// The last stage of a batch before the model: on the device, as the model computes.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// How the model wants its floats.
struct InputFormat {
  at::Device device = at::kCPU;
  at::ScalarType float_type = at::kFloat;  // of normalised images, and of other floats that are no targets
  bool channels_last = false;
};

/// Finishes batches of one dataset. For one thread.
class Preprocess {
 public:
  Preprocess(const Dataset& dataset, const InputFormat& format);
  ~Preprocess();
  Preprocess(Preprocess&&) noexcept;

  /// Work that is queued after this call finds the batch on the device, finished: images as normalised floats
  /// [batch, channels, height, width], other floats in the wanted type. The tensors are the caller's for as long as it
  /// keeps them.
  Batch operator()(const Batch& batch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Work that is queued on the current stream after this call finds the batch on the device, as it was read.
void await(const Batch& batch);

}  // namespace gputrain::data
