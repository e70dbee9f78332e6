// Zeroed flat buffers.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// Returns [numel] zeros. On the CPU, pages take memory only when written.
at::Tensor flat_zeros(int64_t numel, const at::TensorOptions& options);

}  // namespace gputrain::device
