// The loss of classifiers and language models, lean in memory: the gradient overwrites the logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

struct CrossEntropyOptions {
  int64_t classes = 0;         // columns of the logits that are classes; those past them take no part
  double label_smoothing = 0;  // share of each target spread evenly over all classes
  at::Tensor weight = {};      // of the sum in `weighted`: 0-dim double on the logits' device; undefined: 1
};

struct Loss {
  at::Tensor sum;       // 0-dim double, not on the autograd graph
  at::Tensor weighted;  // sum * weight, on the graph where the logits are
};

/// The sum over targets of the cross entropy: logits [..., columns >= classes], targets int64 [...], of which
/// kIgnoreIndex is left out. Arithmetic in at least fp32. Equals torch.nn.functional.cross_entropy with
/// reduction="sum".
///
/// Logits that require a gradient are read once: in the same pass the gradient of `weighted` is written over them,
/// which the backward pass only hands on. Hand them over, keep no use of them after. In 16 bits the weight is to be
/// what the gradient is scaled by in all (a share of the mean, fp16's loss scale): it counts before the gradient is
/// rounded. Throws Error(data) for a target outside of the classes (on a GPU such a target fails in the device).
Loss cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options);

}  // namespace gputrain::ops
