// Host memory of micro-batches: given out as tensors and reused after the caller has released them.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// The tensors of a micro-batch, field by field in the order of the layout.
struct BatchBuffers {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> counts;  // undefined if the field is not ragged

  BatchMemory memory() const;
};

/// Host tensors, each reused when nobody else holds it: page faults make new memory cost more than filling it. Not
/// thread-safe.
class TensorPool {
 public:
  /// Returns a tensor of these sizes with undefined content.
  at::Tensor get(at::IntArrayRef sizes, const at::TensorOptions& options,
                 at::MemoryFormat format = at::MemoryFormat::Contiguous);

 private:
  std::vector<at::Tensor> lent_;
};

/// The buffers of one loader's micro-batches. Not thread-safe.
class BufferPool {
 public:
  BufferPool(const SampleLayout& layout, int64_t rows, bool pinned);

  BatchBuffers get();

 private:
  struct FieldPool {
    std::vector<int64_t> sizes;  // [rows, ...]
    at::ScalarType type;
    bool ragged;
    TensorPool values = {}, counts = {};
  };
  std::vector<FieldPool> fields_;
  bool pinned_;
};

}  // namespace gputrain::data
