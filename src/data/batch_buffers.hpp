// The host memory of micro-batches: handed out as tensors, used again when the caller has let go of them.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/data/dataset.hpp"
#include "row_reader.hpp"

namespace gputrain::data {

struct BatchBuffers {
  at::Tensor inputs, targets;

  Destination destination() const;
};

/// For one thread.
class BufferPool {
 public:
  BufferPool(const SampleLayout& layout, int64_t rows, bool pinned);

  BatchBuffers get();

 private:
  BatchBuffers allocate() const;

  std::vector<int64_t> input_sizes_, target_sizes_;
  at::ScalarType input_type_;
  bool pinned_;
  std::vector<BatchBuffers> lent_;
};

}  // namespace gputrain::data
