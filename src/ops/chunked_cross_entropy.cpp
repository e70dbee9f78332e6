#include "gputrain/ops/chunked_cross_entropy.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsTogether = 128;  // rows of a part are a multiple: tiles of matrix units

int64_t rows_per_part(const Head& head, const at::Tensor& rows, int64_t most_bytes) {
  if (!head.logits) return rows.size(0);
  const int64_t bytes_per_row = head.columns * static_cast<int64_t>(rows.element_size());
  const int64_t most = std::max<int64_t>(1, most_bytes / bytes_per_row);
  const int64_t parts = ceil_divide(rows.size(0), most);
  if (parts <= 1) return rows.size(0);
  const int64_t even = ceil_divide(rows.size(0), parts);
  return std::min(most, ceil_divide(even, kRowsTogether) * kRowsTogether);
}

at::Tensor flat(const at::Tensor& features) {
  return features.dim() == 2 ? features : features.reshape({-1, features.size(-1)});
}

Loss loss_of(const Head& head, const at::Tensor& rows, const at::Tensor& targets, const CrossEntropyOptions& options) {
  return loss_of_logits(head, head.logits ? head.logits(rows) : rows, targets, options);
}

/// Adds up tensors; an undefined one counts as zero.
void add_up(at::Tensor& sum, const at::Tensor& more) {
  if (!sum.defined()) {
    sum = more;
  } else if (more.defined()) {
    sum.add_(more);
  }
}

bool requires_grad(const at::Tensor& tensor) { return tensor.requires_grad(); }

/// The loss in parts; each part runs backward at once.
struct LossInParts : torch::autograd::Function<LossInParts> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, at::TensorList parameters,
                               const at::Tensor& targets, const Head& head, const CrossEntropyOptions& options,
                               int64_t most_bytes) {
    const auto scalars = rows.options().dtype(at::kDouble);
    const at::Tensor weighted = at::zeros({}, scalars), sum = at::zeros({}, scalars), drows = at::empty_like(rows);
    variable_list gradients(parameters.size());
    int64_t begin = 0;
    each_part(head, rows, targets, most_bytes, [&](const at::Tensor& part, const at::Tensor& part_targets) {
      const at::AutoGradMode with_graph(true);
      variable_list leaves{part.detach().set_requires_grad(true)};
      std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(leaves), requires_grad);
      const Loss loss = loss_of(head, leaves[0], part_targets, options);
      // Undefined for a parameter: no gradient, or already added to its .grad.
      const variable_list found =
          torch::autograd::grad({loss.weighted}, leaves, {}, /*retain_graph=*/false, /*create_graph=*/false,
                                /*allow_unused=*/true);
      const at::NoGradGuard no_grad;
      drows.narrow(0, begin, part.size(0)).copy_(found[0]);
      begin += part.size(0);
      for (size_t i = 0, leaf = 1; i < gradients.size(); ++i) {
        if (requires_grad(parameters[i])) add_up(gradients[i], found[leaf++]);
      }
      weighted.add_(loss.weighted.detach());
      sum.add_(loss.sum);
    });
    gradients.insert(gradients.begin(), drows);
    context->save_for_backward(std::move(gradients));
    context->mark_non_differentiable({sum});
    return {weighted, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients_of_results) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the loss of a head has no second derivative");
    const at::Tensor& factor = gradients_of_results[0];  // not read on a device: that would synchronise
    GPUTRAIN_ASSERT(!factor.is_cpu() || *factor.const_data_ptr<double>() == 1, "backward must start at this loss");
    variable_list gradients = context->get_saved_variables();
    gradients.resize(gradients.size() + 4);  // undefined for targets and non-tensors
    return gradients;
  }
};

}  // namespace

Loss loss_of_logits(const Head& head, const at::Tensor& logits, const at::Tensor& targets,
                    const CrossEntropyOptions& options) {
  return head.loss ? head.loss(logits, targets, options) : cross_entropy(logits, targets, options);
}

void each_part(const Head& head, const at::Tensor& features, const at::Tensor& targets, int64_t most_bytes,
               const std::function<void(const at::Tensor&, const at::Tensor&)>& visit) {
  const at::Tensor rows = flat(features), flat_targets = targets.contiguous().view({-1});
  GPUTRAIN_ASSERT(rows.size(0) == flat_targets.size(0), "features and targets must agree");
  const int64_t step = rows_per_part(head, rows, most_bytes);
  if (step >= rows.size(0)) return visit(rows, flat_targets);
  for (int64_t begin = 0; begin < rows.size(0); begin += step) {
    const int64_t count = std::min(step, rows.size(0) - begin);
    visit(rows.narrow(0, begin, count), flat_targets.narrow(0, begin, count));
  }
}

Loss chunked_cross_entropy(const Head& head, const at::Tensor& features, const at::Tensor& targets,
                           const CrossEntropyOptions& options, int64_t most_bytes) {
  const at::Tensor rows = flat(features);
  const bool is_whole = rows_per_part(head, rows, most_bytes) >= rows.size(0);
  const bool learns =
      rows.requires_grad() || std::any_of(head.parameters.begin(), head.parameters.end(), requires_grad);
  if (is_whole || !at::GradMode::is_enabled() || !learns) {
    return loss_of(head, features, targets, options);
  }
  const auto results = LossInParts::apply(rows, at::TensorList(head.parameters), targets, head, options, most_bytes);
  return {.sum = results[1], .weighted = results[0]};
}

}  // namespace gputrain::ops
