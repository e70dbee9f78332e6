#include "gputrain/ops/split_layers.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"

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

/// Calls visit(first row, rows) for parts of a matrix, so that wider copies of them stay small.
template <class Visit>
void each_block(const at::Tensor& matrix, const Visit& visit) {
  constexpr int64_t kElements = int64_t{1} << 22;
  const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(1, matrix.size(1)));
  for (int64_t begin = 0; begin < matrix.size(0); begin += step)
    visit(begin, matrix.narrow(0, begin, std::min(step, matrix.size(0) - begin)));
}

/// {weighted, sum} of the loss; the first has a gradient, which overwrites the logits.
struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                               const CrossEntropyOptions& options, int64_t first, comm::Group* group) {
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor rows = logits.detach().view({-1, logits.size(-1)}), wanted = targets.reshape({-1});
    const int64_t columns = rows.size(1);
    const at::Tensor place = wanted - first, is_here = place.ge(0).logical_and(place.lt(columns));
    const at::Tensor column = place.clamp(0, columns - 1).unsqueeze(1), counts = wanted.ne(kIgnoreIndex);
    // For the columns here: the logarithm of the sum of exponentials, the target's logit, the sum of all logits.
    const at::Tensor own = at::empty({3, rows.size(0)}, rows.options().dtype(type));
    each_block(rows, [&](int64_t begin, const at::Tensor& part) {
      const at::Tensor wide = part.to(type);
      const auto of = [&](const at::Tensor& all) { return all.narrow(0, begin, part.size(0)); };
      of(own[0]).copy_(at::logsumexp(wide, at::IntArrayRef{1}));
      of(own[1]).copy_(wide.gather(1, of(column)).squeeze(1).mul_(of(is_here)));
      of(own[2]).copy_(wide.sum(1));
    });
    const at::Tensor total = at::logsumexp(group->all_gather(own[0], "sums of logits"), at::IntArrayRef{0});
    const at::Tensor sums = own.narrow(0, 1, 2);
    group->all_reduce_sum(sums, "logits of targets").wait();
    const double smoothing = options.label_smoothing, each = smoothing / static_cast<double>(options.classes);
    const at::Tensor losses = total - sums[0] * (1 - smoothing) - sums[1] * each;
    const at::Tensor sum = losses.mul(counts).sum(at::kDouble);
    const at::Tensor weighted = options.weight.defined() ? sum * options.weight : sum.clone();
    context->mark_non_differentiable({sum});
    if (!logits.requires_grad()) return {weighted, sum};
    const at::Tensor factor = options.weight.defined() ? counts.to(type) * options.weight.to(type) : counts.to(type);
    each_block(rows, [&](int64_t begin, const at::Tensor& part) {
      const auto of = [&](const at::Tensor& all) { return all.narrow(0, begin, part.size(0)); };
      at::Tensor gradient = part.to(type, /*non_blocking=*/false, /*copy=*/true);
      gradient.sub_(of(total).unsqueeze(1)).exp_().sub_(each);
      gradient.scatter_add_(1, of(column), of(is_here).to(type).mul_(smoothing - 1).unsqueeze(1));
      part.copy_(gradient.mul_(of(factor).unsqueeze(1)));
    });
    context->save_for_backward({rows.view_as(logits)});
    return {weighted, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& factor = gradients[0];  // not read on a device: that would synchronise
    GPUTRAIN_ASSERT(!factor.is_cpu() || *factor.const_data_ptr<double>() == 1, "backward must start at this loss");
    return {context->get_saved_variables()[0], {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor split_input(const at::Tensor& x, comm::Group* group) {
  return group == nullptr ? x : SplitInput::apply(x, group);
}

at::Tensor split_sum(const at::Tensor& part, comm::Group* group) {
  return group == nullptr ? part : SplitSum::apply(part, group);
}

Loss split_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
                         int64_t first, comm::Group& group) {
  const variable_list results = SplitCrossEntropy::apply(logits, targets, options, first, &group);
  return {.sum = results[1], .weighted = results[0]};
}

}  // namespace gputrain::ops
