#include "gputrain/ops/normalization.hpp"

#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>

#include "cpu/fused.hpp"
#include "dispatch/gpu.hpp"
#include "gputrain/comm/group.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/linear.hpp"
#include "synchronised_batch_norm.hpp"

namespace gputrain::ops {
namespace {

/// Returns whether the norm is over several ranks. On one rank ATen does the same faster, but rejects one value per
/// channel.
bool is_synchronised(const at::Tensor& x, const BatchNormOptions& options) {
  return options.training && options.group != nullptr && (options.group->size() > 1 || x.numel() <= x.size(1));
}

// ATen's GPU kernels need weight and activations of one type. Its CPU kernels also accept fp32 weights with 16-bit
// activations, which keeps the weights exact.
at::Tensor norm_operand(const at::Tensor& weight, const at::Tensor& x) {
  return x.is_cuda() ? cast(weight, x.scalar_type()) : weight;
}

at::Tensor aten_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {weight.size(0)}, norm_operand(weight, x), bias.defined() ? norm_operand(bias, x) : bias,
                        eps, /*cudnn_enable=*/true);
}

at::Tensor aten_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor operand = norm_operand(weight, x), wide = cast(x, operand.scalar_type());
  const at::Tensor y = cpu::is_fusible(wide) ? cpu::norm(wide, operand, {}, eps, /*centred=*/false)
                                             : at::rms_norm(wide, {weight.size(0)}, operand, eps);
  return cast(y, x.scalar_type());
}

/// Normalizes by ATen or by our own kernel. `inputs` as in gpu::norm(); dropout needs a residual.
Tensors norm_on_gpu(const Tensors& inputs, double eps, bool centred, double dropped = 0) {
  const auto reference = [=](double share) -> OpImpl {
    return [=](const Tensors& t) {
      const at::Tensor x = share > 0 ? dropout(t[0], share) : t[0];
      const at::Tensor z = t[3].defined() ? at::add(x, t[3]) : x;
      const at::Tensor y = centred ? aten_layer_norm(z, t[1], t[2], eps) : aten_rms_norm(z, t[1], eps);
      return t[3].defined() ? Tensors{y, z} : Tensors{y};
    };
  };
  const auto custom = [&](double share) { return gpu::norm(inputs, eps, centred, share); };
  const char* name = centred ? "layer_norm" : "rms_norm";
  if (!inputs[3].defined()) return run(name, inputs, {.batched = 1, .differentiable = 4}, custom(0), reference(0));
  // The residual comes after x, so that a comparison on part of the rows cuts both in the same way.
  const Tensors ordered{inputs[0], inputs[3], inputs[1], inputs[2]};
  const auto restored = [](const OpImpl& impl) -> OpImpl {
    if (!impl) return {};
    return [impl](const Tensors& t) { return impl({t[0], t[2], t[3], t[1]}); };
  };
  const std::string of_sum = std::string(name) + "_of_sum";
  const KernelAutotuner::Inputs kinds{.batched = 2, .differentiable = 4};
  if (dropped == 0) return run(of_sum, ordered, kinds, restored(custom(0)), restored(reference(0)));
  // Random results cannot be compared: use the choice made without dropout.
  const bool use_custom_kernel = custom(0) && kernel_autotuner().use_custom_kernel(
                                                  of_sum, ordered, kinds, restored(custom(0)), restored(reference(0)));
  return (use_custom_kernel ? custom(dropped) : reference(dropped))(inputs);
}

/// Computes first the sum, then its norm, not fused.
template <class Norm>
NormedSum norm_of_sum(const at::Tensor& x, const at::Tensor& residual, double dropped, const Norm& norm) {
  const at::Tensor sum = at::add(residual, dropped > 0 ? dropout(x, dropped) : x);
  return {.sum = sum, .normed = norm(sum)};
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (gpu::is_here(x)) return norm_on_gpu({x, weight, bias, {}}, eps, /*centred=*/true)[0];
  if (cpu::is_fusible(x)) return cpu::norm(x, weight, bias, eps, /*centred=*/true);
  return aten_layer_norm(x, weight, bias, eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (gpu::is_here(x)) return norm_on_gpu({x, weight, {}, {}}, eps, /*centred=*/false)[0];
  return aten_rms_norm(x, weight, eps);
}

NormedSum layer_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, double eps, double dropout) {
  if (gpu::is_here(x) && residual.scalar_type() == x.scalar_type()) {
    const Tensors found = norm_on_gpu({x, weight, bias, residual}, eps, /*centred=*/true, dropout);
    return {.sum = found[1], .normed = found[0]};
  }
  return norm_of_sum(x, residual, dropout, [&](const at::Tensor& sum) { return layer_norm(sum, weight, bias, eps); });
}

NormedSum rms_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                          double dropout) {
  if (gpu::is_here(x) && residual.scalar_type() == x.scalar_type()) {
    const Tensors found = norm_on_gpu({x, weight, {}, residual}, eps, /*centred=*/false, dropout);
    return {.sum = found[1], .normed = found[0]};
  }
  return norm_of_sum(x, residual, dropout, [&](const at::Tensor& sum) { return rms_norm(sum, weight, eps); });
}

namespace {

/// Normalizes by ATen in training. For a single value per channel its unbiased variance is 0 / 0, and the running
/// variance would stay NaN: update it with 0 instead.
at::Tensor aten_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var,
                           const BatchNormOptions& options) {
  const auto normed = [&](const at::Tensor& mean, const at::Tensor& variance) {
    return at::batch_norm(x, weight, bias, mean, variance, /*training=*/true, options.momentum, options.eps,
                          /*cudnn_enabled=*/true);
  };
  if (x.numel() != x.size(1)) return normed(running_mean, running_var);
  {
    const at::NoGradGuard no_grad;
    running_mean.mul_(1 - options.momentum).add_(x.detach().flatten().to(running_mean.scalar_type()), options.momentum);
    running_var.mul_(1 - options.momentum);
  }
  return normed({}, {});
}

/// Normalizes in training, by ATen or our own kernel. `inputs` as in gpu::batch_norm().
at::Tensor batch_norm_on_gpu(const Tensors& inputs, const BatchNormOptions& options, bool relu) {
  const OpImpl reference = [=](const Tensors& t) {
    at::Tensor y = aten_batch_norm(t[0], t[2], t[3], t[4], t[5], options);
    if (t[1].defined()) y.add_(t[1]);
    return Tensors{relu ? at::relu_(y) : y};
  };
  return run(relu ? "batch_norm_relu" : "batch_norm", inputs, {.batched = 2, .differentiable = 4},
             gpu::batch_norm(inputs, options, relu), reference)[0];
}

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& options) {
  if (is_synchronised(x, options)) return synchronised_batch_norm(x, weight, bias, running_mean, running_var, options);
  if (options.training && gpu::is_here(x)) {
    return batch_norm_on_gpu({x, {}, weight, bias, running_mean, running_var}, options, /*relu=*/false);
  }
  if (options.training) return aten_batch_norm(x, weight, bias, running_mean, running_var, options);
  return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false, options.momentum, options.eps,
                        /*cudnn_enabled=*/true);
}

at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var,
                           const BatchNormOptions& options, const at::Tensor& residual) {
  if (options.training && !is_synchronised(x, options) && gpu::is_here(x)) {
    return batch_norm_on_gpu({x, residual, weight, bias, running_mean, running_var}, options, /*relu=*/true);
  }
  if (options.training && !is_synchronised(x, options) && cpu::is_fusible_batch(x, residual)) {
    return cpu::batch_norm_relu(x, weight, bias, residual, {running_mean, running_var, options.momentum}, options.eps);
  }
  at::Tensor y = batch_norm(x, weight, bias, running_mean, running_var, options);
  if (residual.defined()) y.add_(residual);
  return at::relu_(y);
}

}  // namespace gputrain::ops
