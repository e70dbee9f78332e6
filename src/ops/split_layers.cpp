#include "gputrain/ops/split_layers.hpp"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/batch.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

comm::Group* saved_group(AutogradContext* context) {
  return reinterpret_cast<comm::Group*>(context->saved_data["group"].toInt());
}

at::Tensor summed(const at::Tensor& part, comm::Group* group, const char* name) {
  const at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
  group->all_reduce_sum(sum, name).wait();
  return sum;
}

struct SplitInput : torch::autograd::Function<SplitInput> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, comm::Group* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {summed(gradients[0], saved_group(context), "gradients of split layers"), at::Tensor()};
  }
};

struct SplitSum : torch::autograd::Function<SplitSum> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& part, comm::Group* group) {
    return summed(part, group, "results of split layers");
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

/// {weighted, sum} of the loss; the first has a gradient.
struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                               const CrossEntropyOptions& options, int64_t first, comm::Group* group) {
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor rows = logits.reshape({-1, logits.size(-1)}).to(type), wanted = targets.reshape({-1});
    const int64_t columns = rows.size(1);
    const at::Tensor logarithms = group->all_gather(at::logsumexp(rows, at::IntArrayRef{1}), "sums of logits");
    const at::Tensor total = at::logsumexp(logarithms, at::IntArrayRef{0});
    const at::Tensor place = wanted - first, is_here = place.ge(0).logical_and(place.lt(columns));
    const at::Tensor column = place.clamp(0, columns - 1).unsqueeze(1);
    const at::Tensor counts = wanted.ne(kIgnoreIndex);
    // The logit of each target, and the sum of all logits: of the columns here, then of all.
    const at::Tensor sums = at::stack({rows.gather(1, column).squeeze(1).mul(is_here), rows.sum(1)}).contiguous();
    group->all_reduce_sum(sums, "logits of targets").wait();
    const double smoothing = options.label_smoothing, each = smoothing / static_cast<double>(options.classes);
    const at::Tensor losses = total - sums[0] * (1 - smoothing) - sums[1] * each;
    const at::Tensor sum = losses.mul(counts).sum(at::kDouble);
    const at::Tensor weighted = options.weight.defined() ? sum * options.weight : sum.clone();
    if (logits.requires_grad()) {
      at::Tensor gradient = at::exp(rows - total.unsqueeze(1)).sub_(each);
      gradient.scatter_add_(1, column, is_here.to(type).mul_(smoothing - 1).unsqueeze(1));
      gradient.mul_(counts.unsqueeze(1));
      if (options.weight.defined()) gradient.mul_(options.weight.to(type));
      context->save_for_backward({gradient.to(logits.scalar_type()).view_as(logits)});
    }
    context->mark_non_differentiable({sum});
    return {weighted, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gradient = context->get_saved_variables()[0];
    return {gradient * gradients[0].to(gradient.scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor split_input(const at::Tensor& x, comm::Group* group) {
  return group == nullptr ? x : SplitInput::apply(x, group);
}

at::Tensor split_sum(const at::Tensor& part, comm::Group* group) {
  return group == nullptr ? part : SplitSum::apply(part, group);
}

at::Tensor gathered_columns(const at::Tensor& part, int64_t columns, comm::Group* group) {
  if (group == nullptr) return part;
  const int64_t ranks = group->size(), most = (columns + ranks - 1) / ranks;
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes.back() = most;
  const at::Tensor sent = at::zeros(sizes, part.options());
  sent.narrow(-1, 0, part.size(-1)).copy_(part.detach());
  const at::Tensor all = group->all_gather(sent, "logits");
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t count = columns * (rank + 1) / ranks - columns * rank / ranks;
    parts.push_back(all.select(0, rank).narrow(-1, 0, count));
  }
  return at::cat(parts, -1);
}

Loss split_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
                         int64_t first, comm::Group& group) {
  const variable_list results = SplitCrossEntropy::apply(logits, targets, options, first, &group);
  return {.sum = results[1], .weighted = results[0]};
}

}  // namespace gputrain::ops
