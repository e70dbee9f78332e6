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
  std::vector<int64_t> input_sizes_, target_sizes_;
  at::ScalarType input_type_;
  bool pinned_;
  TensorPool inputs_, targets_;
};

}  // namespace gputrain::data
