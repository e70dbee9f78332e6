// Rows of a batch whose targets count, for a model's last layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::tasks {

/// Returns the places [places] among targets [rows] of all that count. With `most` > 0 they are that many, by
/// BatchField's most_counted: some that do not count are at the end, and no device waits. Else a device tells the host
/// how many there are.
at::Tensor counted_places(const at::Tensor& targets, int64_t most);

/// Returns whether taking rows of features [..., channels] costs little beside the head's computation with them.
bool costs_little(const ops::Head& head, const at::Tensor& features);

}  // namespace gputrain::tasks
