// The loss of classifiers and language models, lean in memory: the gradient overwrites the logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

struct CrossEntropyOptions {
  int64_t classes = 0;         // columns of the logits that are classes; those past them take no part
  double label_smoothing = 0;  // share of each target spread evenly over all classes
};

/// The sum over targets of the cross entropy: logits [..., columns >= classes], targets int64 [...], of which
/// kIgnoreIndex is left out -> double scalar. Arithmetic in at least fp32. Equals torch.nn.functional.cross_entropy
/// with reduction="sum".
///
/// The backward pass writes the gradient into the storage of `logits`, once: hand them over, keep no use of them after.
/// Throws Error(data) for a target outside of the classes (on a GPU such a target fails in the device).
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options);

}  // namespace gputrain::ops
