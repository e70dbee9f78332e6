#include "gputrain/ops/normalization.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>

#include "cpu/fused.hpp"
#include "gputrain/comm/group.hpp"
#include "gputrain/ops/linear.hpp"
#include "synchronised_batch_norm.hpp"

namespace gputrain::ops {
namespace {

/// Alone, ATen does the same faster, but refuses a single value per channel.
bool is_synchronised(const at::Tensor& x, const BatchNormOptions& options) {
  return options.training && options.group != nullptr && (options.group->size() > 1 || x.numel() <= x.size(1));
}

// ATen's GPU kernels want weight and activations of one type; its CPU kernels also take fp32 weights beside 16-bit
// activations, which keeps the weights exact.
at::Tensor norm_operand(const at::Tensor& weight, const at::Tensor& x) {
  return x.is_cuda() ? cast(weight, x.scalar_type()) : weight;
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (cpu::is_fusible(x)) return cpu::norm(x, weight, bias, eps, /*centred=*/true);
  return at::layer_norm(x, {weight.size(0)}, norm_operand(weight, x), bias.defined() ? norm_operand(bias, x) : bias,
                        eps, /*cudnn_enable=*/true);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor operand = norm_operand(weight, x), wide = cast(x, operand.scalar_type());
  const at::Tensor y = cpu::is_fusible(wide) ? cpu::norm(wide, operand, {}, eps, /*centred=*/false)
                                             : at::rms_norm(wide, {weight.size(0)}, operand, eps);
  return cast(y, x.scalar_type());
}

at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& options) {
  if (is_synchronised(x, options)) return synchronised_batch_norm(x, weight, bias, running_mean, running_var, options);
  return at::batch_norm(x, weight, bias, running_mean, running_var, options.training, options.momentum, options.eps,
                        /*cudnn_enabled=*/true);
}

at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var,
                           const BatchNormOptions& options, const at::Tensor& residual) {
  if (options.training && !is_synchronised(x, options) && cpu::is_fusible_batch(x, residual)) {
    return cpu::batch_norm_relu(x, weight, bias, residual, {running_mean, running_var, options.momentum}, options.eps);
  }
  at::Tensor y = batch_norm(x, weight, bias, running_mean, running_var, options);
  if (residual.defined()) y.add_(residual);
  return at::relu_(y);
}

}  // namespace gputrain::ops
