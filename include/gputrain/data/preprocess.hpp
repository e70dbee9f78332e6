// Last stage of a batch before the model: runs on the device and converts to the model's types.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "gputrain/data/batch.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// The format in which the model wants floats.
struct InputFormat {
  at::Device device = at::kCPU;
  at::ScalarType float_type = at::kFloat;  // type of normalised images and of other floats except targets
  bool channels_last = false;
};

/// Last stage for batches of one dataset. Not thread-safe.
class Preprocess {
 public:
  Preprocess(const Dataset& dataset, const InputFormat& format);
  ~Preprocess();
  Preprocess(Preprocess&&) noexcept;

  /// Finishes a batch on the device: images become normalised floats [batch, channels, height, width], other floats get
  /// the wanted type. Work that is queued later on the current stream sees the result. The caller owns the tensors.
  Batch operator()(const Batch& batch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Makes the current stream wait until the copy of the batch to the device is complete.
void await(const Batch& batch);

}  // namespace gputrain::data
