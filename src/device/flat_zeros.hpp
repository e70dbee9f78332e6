// Zeroed flat buffers.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// [numel], zero. On the CPU it takes memory only as it is written to.
at::Tensor flat_zeros(int64_t numel, const at::TensorOptions& options);

}  // namespace gputrain::device
