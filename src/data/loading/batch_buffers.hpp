// The host memory of micro-batches: handed out as tensors, used again when the caller has let go of them.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// The tensors of a micro-batch, field by field in the layout's order.
struct BatchBuffers {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> counts;  // undefined where the field is not ragged

  BatchMemory memory() const;
};

/// Tensors of host memory, each used again when nobody else holds it: fresh memory costs more than filling it, page by
/// page. For one thread.
class TensorPool {
 public:
  /// A tensor of these sizes with undefined content.
  at::Tensor get(at::IntArrayRef sizes, const at::TensorOptions& options,
                 at::MemoryFormat format = at::MemoryFormat::Contiguous);

 private:
  std::vector<at::Tensor> lent_;
};

/// The buffers of one loader's micro-batches. For one thread.
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
