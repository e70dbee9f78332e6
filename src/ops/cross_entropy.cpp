#include "gputrain/ops/cross_entropy.hpp"

#include <algorithm>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::ops {
namespace {

// Rows are processed in chunks, so that intermediates stay smaller than the logits. On a CPU a chunk fits the cache, on
// a GPU it still fills the device.
int64_t rows_per_chunk(const at::Tensor& logits) {
  const int64_t elements = logits.is_cuda() ? int64_t{1} << 26 : int64_t{1} << 18;
  return std::max<int64_t>(1, elements / logits.size(1));
}

at::ScalarType wide_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

template <class Visit>  // void(logits [rows, columns], targets [rows])
void each_chunk(const at::Tensor& logits, const at::Tensor& targets, const Visit& visit) {
  const int64_t rows = logits.size(0), step = rows_per_chunk(logits);
  if (rows <= step) return visit(logits, targets);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    visit(logits.narrow(0, begin, count), targets.narrow(0, begin, count));
  }
}

/// Returns the sum of the losses for these log-likelihoods [rows, classes].
at::Tensor sum_of(const at::Tensor& log_likelihood, const at::Tensor& targets, double smoothing) {
  at::Tensor sum =
      at::nll_loss(log_likelihood, targets, {}, at::Reduction::Sum, kIgnoreIndex).to(at::kDouble).mul_(1 - smoothing);
  if (smoothing > 0) {
    const at::Tensor per_row = log_likelihood.sum({1}).mul_(at::ne(targets, kIgnoreIndex));
    sum.sub_(per_row.sum(at::kDouble), smoothing / static_cast<double>(log_likelihood.size(1)));
  }
  return sum;
}

/// Turns log-likelihoods into (likelihood - smoothed target) * weight; ignored rows become 0.
void turn_into_gradient(at::Tensor& log_likelihood, const at::Tensor& targets, double smoothing,
                        const at::Tensor& weight) {
  at::Tensor& gradient = log_likelihood.exp_();
  const at::Tensor counted = at::ne(targets, kIgnoreIndex), hits = at::mul(targets, counted).unsqueeze_(1);
  gradient.scatter_add_(1, hits, at::zeros({1, 1}, gradient.options()).sub_(1 - smoothing).expand_as(hits));
  if (smoothing > 0) gradient.sub_(smoothing / static_cast<double>(gradient.size(1)));
  gradient.mul_(at::mul(weight, counted).to(gradient.scalar_type()).unsqueeze_(1));
}

/// Returns the loss sum. If `learns`, overwrites the logits with the gradient of this sum times `weight`.
at::Tensor sum_and_gradient(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& weight,
                            int64_t classes, double smoothing, bool learns) {
  at::Tensor sum = at::zeros({}, logits.options().dtype(at::kDouble));
  each_chunk(logits, targets, [&](const at::Tensor& chunk, const at::Tensor& chunk_targets) {
    const int64_t padding = chunk.size(1) - classes;
    const at::Tensor columns = chunk.narrow(1, 0, classes);
    at::Tensor log_likelihood = at::log_softmax(columns, 1, wide_type(logits));
    sum.add_(sum_of(log_likelihood, chunk_targets, smoothing));
    if (!learns) return;
    turn_into_gradient(log_likelihood, chunk_targets, smoothing, weight);
    columns.copy_(log_likelihood);
    if (padding > 0) chunk.narrow(1, classes, padding).zero_();
  });
  return sum;
}

/// Does not wait for a device: false for a scalar on one.
bool is_one(const at::Tensor& scalar) { return scalar.is_cpu() && *scalar.const_data_ptr<double>() == 1; }

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                                                const at::Tensor& targets, const at::Tensor& weight, int64_t classes,
                                                double smoothing, bool learns) {
    at::Tensor sum = sum_and_gradient(logits.detach(), targets, weight, classes, smoothing, learns);
    if (learns) context->save_for_backward({logits});
    context->mark_non_differentiable({sum});
    return {at::mul(sum, weight), sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the cross entropy has no second derivative");
    at::Tensor gradient = context->get_saved_variables()[0].detach();
    if (!is_one(gradients[0])) gradient.mul_(gradients[0]);
    // Later gradient functions overwrite this buffer: the new version makes a second backward pass throw.
    gradient.unsafeGetTensorImpl()->bump_version();
    return {gradient, {}, {}, {}, {}, {}};
  }
};

void check_targets(const at::Tensor& targets, int64_t classes) {
  if (!targets.is_cpu()) return;  // reading them would synchronise the device
  for (const int64_t target :
       at::ArrayRef<int64_t>(targets.const_data_ptr<int64_t>(), static_cast<size_t>(targets.numel()))) {
    if (target == kIgnoreIndex || (target >= 0 && target < classes)) continue;
    throw Error(ExitCode::data, {.what = "target " + std::to_string(target) + " is not one of the model's " +
                                         std::to_string(classes) + " classes",
                                 .hint = "set model.config.num_classes (or vocab_size) to cover every label"});
  }
}

}  // namespace

Loss cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options) {
  const at::Tensor rows = logits.dim() == 2 ? logits : logits.reshape({-1, logits.size(-1)});
  const at::Tensor flat_targets = targets.contiguous().view({-1});
  GPUTRAIN_ASSERT(rows.size(0) == flat_targets.size(0) && rows.size(1) >= options.classes,
                  "logits and targets must agree");
  check_targets(flat_targets, options.classes);
  const at::Tensor weight = options.weight.defined() ? options.weight : at::ones({}, rows.options().dtype(at::kDouble));
  const OpImpl reference = [&](const Tensors& t) {
    return CrossEntropy::apply(t[0], t[1], t[2], options.classes, options.label_smoothing,
                               t[0].requires_grad() && at::GradMode::is_enabled());
  };
  const Tensors inputs{rows, flat_targets, weight};
  const Tensors found =
      gpu::is_here(rows)
          ? run("cross_entropy " + std::to_string(options.classes), inputs, {.batched = 2, .differentiable = 1},
                gpu::cross_entropy(rows, options.classes, options.label_smoothing), reference)
          : reference(inputs);
  return {.sum = found[1], .weighted = found[0]};
}

at::Tensor log_probs(const at::Tensor& logits, const at::Tensor& targets, int64_t classes) {
  GPUTRAIN_ASSERT(logits.dim() == 2 && logits.size(0) == targets.numel() && logits.size(1) >= classes,
                  "logits and targets must agree");
  const OpImpl reference = [classes](const Tensors& t) {
    const at::Tensor all = at::log_softmax(t[0].narrow(1, 0, classes), 1, wide_type(t[0]));
    const at::Tensor found = all.gather(1, t[1].clamp_min(0).unsqueeze(1)).squeeze(1);
    return Tensors{found.masked_fill(t[1].eq(kIgnoreIndex), 0)};
  };
  return run("log_probs " + std::to_string(classes), {logits, targets}, {.batched = 2, .differentiable = 1},
             gpu::log_probs(logits, classes), reference)[0];
}

}  // namespace gputrain::ops
