#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/cross_entropy.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

CrossEntropyRows loss_rows(const at::Tensor& logits, const at::Tensor& targets, int64_t classes, double smoothing) {
  return {.element = element_of(logits),
          .rows = logits.size(0),
          .columns = logits.size(1),
          .classes = classes,
          .ignored = kIgnoreIndex,
          .smoothing = static_cast<float>(smoothing),
          .logits = logits.mutable_data_ptr(),
          .targets = read<int64_t>(targets),
          .loss = nullptr,
          .weight = nullptr};
}

struct RowLoss : torch::autograd::Function<RowLoss> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                               const at::Tensor& weight, int64_t classes, double smoothing, bool learns) {
    const auto floats = logits.options().dtype(at::kFloat);
    const at::Tensor loss = at::empty({logits.size(0)}, floats), sum = at::empty({}, floats.dtype(at::kDouble));
    CrossEntropyRows rows = loss_rows(logits, targets, classes, smoothing);
    rows.loss = write<float>(loss);
    if (learns) rows.weight = read<double>(weight);
    cross_entropy(rows, current_stream());
    total(rows.loss, rows.rows, write<double>(sum), current_stream());
    check_launches();
    if (learns) context->save_for_backward({logits, targets});
    context->mark_non_differentiable({sum});
    return {at::mul(sum, weight), sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the cross entropy has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = saved[0].detach(), factor = gradients[0].to(at::kDouble).contiguous();
    CrossEntropyRows rows = loss_rows(gradient, saved[1], gradient.size(1), 0);
    rows.weight = read<double>(factor);
    scale_logits(rows, current_stream());
    check_launches();
    // Later gradient functions overwrite this buffer: the new version makes a second backward pass throw.
    gradient.unsafeGetTensorImpl()->bump_version();
    return {gradient, {}, {}, {}, {}, {}};
  }
};

struct RowLogProbs : torch::autograd::Function<RowLogProbs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                            int64_t classes, bool learns) {
    const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat)),
                     lse = learns ? at::empty_like(losses) : at::Tensor();
    CrossEntropyRows rows = loss_rows(logits, targets, classes, 0);
    rows.loss = write<float>(losses);
    rows.lse = write<float>(lse);
    cross_entropy(rows, current_stream());
    check_launches();
    if (learns) context->save_for_backward({logits, targets, lse});
    context->saved_data["classes"] = classes;
    return at::neg(losses);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "log-probabilities of targets have no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = saved[0].detach(), weights = at::neg(gradients[0]).to(at::kDouble).contiguous();
    CrossEntropyRows rows = loss_rows(gradient, saved[1], context->saved_data["classes"].toInt(), 0);
    rows.lse = write<float>(saved[2]);
    rows.weight = read<double>(weights);
    cross_entropy(rows, current_stream());
    check_launches();
    gradient.unsafeGetTensorImpl()->bump_version();  // as in RowLoss
    return {gradient, {}, {}, {}};
  }
};

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl cross_entropy(const at::Tensor& logits, int64_t classes, double smoothing) {
  if (!is_here(logits) || !logits.is_contiguous()) return {};
  return [=](const Tensors& t) {
    const bool learns = t[0].requires_grad() && at::GradMode::is_enabled();
    return cuda::RowLoss::apply(t[0], t[1], t[2], classes, smoothing, learns);
  };
}

OpImpl log_probs(const at::Tensor& logits, int64_t classes) {
  if (!is_here(logits) || !logits.is_contiguous()) return {};
  return [=](const Tensors& t) {
    const bool learns = t[0].requires_grad() && at::GradMode::is_enabled();
    return Tensors{cuda::RowLogProbs::apply(t[0], t[1], classes, learns)};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
