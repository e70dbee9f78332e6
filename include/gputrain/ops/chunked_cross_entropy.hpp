// Loss of a model's last layer, for part of the rows at a time: its logits may be the largest tensor of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/cross_entropy.hpp"

namespace gputrain::ops {

/// Turns features [..., channels] into logits [..., columns], row by row.
struct Head {
  std::function<at::Tensor(const at::Tensor&)> logits;  // result must not be used elsewhere; empty: features are logits
  std::vector<at::Tensor> parameters;                   // all parameters it reads, leaves of the autograd graph
  int64_t columns = 0;
  /// The loss of its logits; empty: cross_entropy().
  std::function<Loss(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options)> loss =
      {};
};

Loss loss_of_logits(const Head& head, const at::Tensor& logits, const at::Tensor& targets,
                    const CrossEntropyOptions& options);

/// Flattens features [..., channels] to rows and calls visit(rows, their targets) for parts of about the same size,
/// each with at most `most_bytes` of logits. Uses as few parts as possible; their number depends only on shapes.
void each_part(const Head& head, const at::Tensor& features, const at::Tensor& targets, int64_t most_bytes,
               const std::function<void(const at::Tensor&, const at::Tensor&)>& visit);

/// Computes cross_entropy() of the head's logits. If they exceed `most_bytes`, each part runs through the head, the
/// loss and back before the next part starts, as in Liger's fused linear cross entropy (arXiv:2410.10989): logits are
/// computed once, and the gradients exist when this returns. The backward pass must then start at `weighted`.
Loss chunked_cross_entropy(const Head& head, const at::Tensor& features, const at::Tensor& targets,
                           const CrossEntropyOptions& options, int64_t most_bytes);

}  // namespace gputrain::ops
