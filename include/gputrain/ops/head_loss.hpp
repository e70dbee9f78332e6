// The loss of a model's last layer, whose logits may be the largest tensor of a step: a part of the rows at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/cross_entropy.hpp"

namespace gputrain::ops {

/// What turns features [..., channels] into logits [..., columns], each row by itself.
struct Head {
  std::function<at::Tensor(const at::Tensor&)> logits;  // nothing else uses what it returns; empty: features are logits
  std::vector<at::Tensor> parameters;                   // all that it reads, leaves of the autograd graph
  int64_t columns = 0;
};

/// Calls visit(rows of features, their targets) over [first dims, channels] flattened to rows, for as few parts of
/// about the same size as have at most `most_bytes` of logits each. The number of parts follows from shapes alone.
void each_part(const Head& head, const at::Tensor& features, const at::Tensor& targets, int64_t most_bytes,
               const std::function<void(const at::Tensor&, const at::Tensor&)>& visit);

/// cross_entropy() of the head's logits. Where they are more than `most_bytes`, each part goes through the head, the
/// loss and back before the next one does, as in Liger's fused linear cross entropy (arXiv:2410.10989): logits are
/// computed once, and the gradients are there when this returns. The backward pass is then to start at `weighted`.
Loss head_loss(const Head& head, const at::Tensor& features, const at::Tensor& targets,
               const CrossEntropyOptions& options, int64_t most_bytes);

}  // namespace gputrain::ops
