#include "gputrain/ops/cross_entropy.hpp"

#include <algorithm>
#include <string>

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gpu.hpp"
#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

// Work goes over the rows in chunks, so that intermediates are never as large as the logits: on a CPU they stay in the
// cache, on a GPU a chunk still fills the device.
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

at::Tensor class_columns(const at::Tensor& logits, int64_t classes) {
  return logits.size(1) == classes ? logits : logits.narrow(1, 0, classes);
}

at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& targets, int64_t classes, double smoothing) {
  at::Tensor sum = at::zeros({}, logits.options().dtype(at::kDouble));
  each_chunk(logits, targets, [&](const at::Tensor& chunk, const at::Tensor& chunk_targets) {
    const at::Tensor log_likelihood = at::log_softmax(class_columns(chunk, classes), 1, wide_type(logits));
    sum.add_(at::nll_loss(log_likelihood, chunk_targets, {}, at::Reduction::Sum, kIgnoreIndex), 1 - smoothing);
    if (smoothing > 0) {
      const at::Tensor counted = at::ne(chunk_targets, kIgnoreIndex);
      const at::Tensor per_row = log_likelihood.sum({1}).mul_(counted);
      sum.sub_(per_row.sum(at::kDouble), smoothing / static_cast<double>(classes));
    }
  });
  return sum;
}

// Turns logits into (softmax - smoothed target) * scale; rows that are left out and columns past the classes become 0.
void overwrite_with_gradient(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& scale,
                             const CrossEntropyOptions& options) {
  each_chunk(logits, targets, [&](const at::Tensor& chunk, const at::Tensor& chunk_targets) {
    at::Tensor columns = class_columns(chunk, options.classes);
    at::Tensor gradient = at::softmax(columns, 1, wide_type(logits));
    const at::Tensor counted = at::ne(chunk_targets, kIgnoreIndex);
    const at::Tensor hits = at::mul(chunk_targets, counted).unsqueeze_(1);
    gradient.scatter_add_(1, hits,
                          at::zeros({1, 1}, gradient.options()).sub_(1 - options.label_smoothing).expand_as(hits));
    if (options.label_smoothing > 0) gradient.sub_(options.label_smoothing / static_cast<double>(options.classes));
    at::mul_out(columns, gradient, at::mul(scale, counted).to(gradient.scalar_type()).unsqueeze_(1));
    const int64_t padding = chunk.size(1) - options.classes;
    if (padding > 0) chunk.narrow(1, options.classes, padding).zero_();
  });
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, int64_t classes, double smoothing) {
    context->save_for_backward({logits, targets});
    context->saved_data["classes"] = classes;
    context->saved_data["smoothing"] = smoothing;
    return loss_sum(logits, targets, classes, smoothing);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the cross entropy has no second derivative");
    const auto saved = context->get_saved_variables();
    const CrossEntropyOptions options{.classes = context->saved_data["classes"].toInt(),
                                      .label_smoothing = context->saved_data["smoothing"].toDouble()};
    const at::Tensor gradient = saved[0].detach();
    overwrite_with_gradient(gradient, saved[1], gradients[0], options);
    return {gradient, {}, {}, {}};
  }
};

void check_targets(const at::Tensor& targets, int64_t classes) {
  if (!targets.is_cpu()) return;  // reading them would stall the device
  for (const int64_t target :
       at::ArrayRef<int64_t>(targets.const_data_ptr<int64_t>(), static_cast<size_t>(targets.numel()))) {
    if (target == kIgnoreIndex || (target >= 0 && target < classes)) continue;
    throw Error(ExitCode::data, {.what = "target " + std::to_string(target) + " is not one of the model's " +
                                         std::to_string(classes) + " classes",
                                 .hint = "set model.config.num_classes (or vocab_size) to cover every label"});
  }
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options) {
  const at::Tensor rows = logits.dim() == 2 ? logits : logits.reshape({-1, logits.size(-1)});
  const at::Tensor flat_targets = targets.contiguous().view({-1});
  GPUTRAIN_ASSERT(rows.size(0) == flat_targets.size(0) && rows.size(1) >= options.classes,
                  "logits and targets must agree");
  check_targets(flat_targets, options.classes);
  const Way plain = [&](const Tensors& t) {
    return Tensors{CrossEntropy::apply(t[0], t[1], options.classes, options.label_smoothing)};
  };
  if (!gpu::is_here(rows)) return plain({rows, flat_targets})[0];
  return run("cross_entropy " + std::to_string(options.classes), {rows, flat_targets},
             {.batched = 2, .differentiable = 1}, gpu::cross_entropy(rows, options.classes, options.label_smoothing),
             plain)[0];
}

}  // namespace gputrain::ops
