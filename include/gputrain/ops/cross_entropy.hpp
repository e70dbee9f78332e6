// Loss of classifiers and language models. It saves memory: the gradient overwrites the logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

struct CrossEntropyOptions {
  int64_t classes = 0;         // the first `classes` columns of the logits are classes; the rest is ignored
  double label_smoothing = 0;  // share of each target spread evenly over all classes
  at::Tensor weight = {};      // factor for `weighted`: 0-dim double on the logits' device; undefined: 1
};

struct Loss {
  at::Tensor sum;       // 0-dim double, not on the autograd graph
  at::Tensor weighted;  // sum * weight, on the graph if the logits are
};

/// Sums the cross entropy over targets. logits [..., columns >= classes], targets int64 [...]; kIgnoreIndex marks
/// targets to skip. Computes in at least fp32. Equals torch.nn.functional.cross_entropy with reduction="sum".
///
/// If the logits require a gradient, the same pass overwrites them with the gradient of `weighted`, so that they are
/// read once; the backward pass only returns it. Do not use the logits afterwards. In 16 bits, `weight` should be the
/// full factor of the gradient (share of the mean, fp16's loss scale), because it is applied before rounding. Throws
/// Error(data) for a target outside the classes; on a GPU the kernel aborts instead.
Loss cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options);

/// Log-probabilities [rows] of targets int64 [rows] among the first `classes` columns of logits [rows, columns], in at
/// least fp32; 0 for kIgnoreIndex. On a GPU the backward pass overwrites the logits: do not use them afterwards. An
/// invalid target gives NaN there.
at::Tensor log_probs(const at::Tensor& logits, const at::Tensor& targets, int64_t classes);

}  // namespace gputrain::ops
