#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../gpu.hpp"
#include "cross_entropy.hpp"
#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
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
          .lse = nullptr,
          .scale = nullptr};
}

struct RowLoss : torch::autograd::Function<RowLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                            int64_t classes, double smoothing) {
    const auto floats = logits.options().dtype(at::kFloat);
    const at::Tensor loss = at::empty({logits.size(0)}, floats), lse = at::empty({logits.size(0)}, floats);
    const at::Tensor sum = at::empty({}, floats.dtype(at::kDouble));
    CrossEntropyRows rows = loss_rows(logits, targets, classes, smoothing);
    rows.loss = write<float>(loss);
    rows.lse = write<float>(lse);
    cross_entropy_forward(rows, current_stream());
    total(rows.loss, rows.rows, write<double>(sum), current_stream());
    check_launches();
    context->save_for_backward({logits, targets, lse});
    context->saved_data["classes"] = classes;
    context->saved_data["smoothing"] = smoothing;
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the cross entropy has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = saved[0].detach(), scale = gradients[0].to(at::kDouble).contiguous();
    CrossEntropyRows rows = loss_rows(gradient, saved[1], context->saved_data["classes"].toInt(),
                                      context->saved_data["smoothing"].toDouble());
    rows.lse = write<float>(saved[2]);
    rows.scale = read<double>(scale);
    cross_entropy_backward(rows, current_stream());
    check_launches();
    // The logits are gone: whoever saved them for another backward pass has to hear of it.
    gradient.unsafeGetTensorImpl()->bump_version();
    return {gradient, {}, {}, {}};
  }
};

}  // namespace
}  // namespace cuda

namespace gpu {

Way cross_entropy(const at::Tensor& logits, int64_t classes, double smoothing) {
  if (!is_here(logits) || !logits.is_contiguous()) return {};
  return [=](const Tensors& t) { return Tensors{cuda::RowLoss::apply(t[0], t[1], classes, smoothing)}; };
}

}  // namespace gpu
}  // namespace gputrain::ops
