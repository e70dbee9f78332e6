#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/batch_norm.hpp"
#include "gputrain/core/error.hpp"
#include "image_norm.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Blocks per multiprocessor: as many as run at once, given their registers, or a multiple of that. A smaller last wave
/// could not keep the memory busy.
constexpr int64_t kForwardBlocks = 5;
constexpr int64_t kBackwardBlocks = 6;  // 3 at once, 2 on sm_100

ImageRows image_rows(const at::Tensor& x, int64_t blocks) {
  const int64_t channels = x.size(1), rows = x.numel() / channels, strips = std::max<int64_t>(1, channels / 256);
  const int64_t most = std::max<int64_t>(1, rows * std::min<int64_t>(channels, 256) / 8192);
  return {.element = element_of(x),
          .rows = rows,
          .channels = channels,
          .parts = static_cast<int>(std::clamp<int64_t>(blocks * multiprocessors() / strips, 1, most))};
}

at::Tensor per_channel(const at::Tensor& x, int64_t count) {
  return at::empty({count, x.size(1)}, x.options().dtype(at::kFloat));
}

using GradientLauncher = void (*)(const ImageRows&, const BatchGradient&, Stream);

NormGradients gradients_by(GradientLauncher launcher, const at::Tensor& dy, const AppliedNorm& norm,
                           const at::Tensor& partials) {
  const at::Tensor results = per_channel(norm.x, 4);
  const bool has_bits = norm.kept.defined() && norm.kept.scalar_type() == at::kByte;
  NormGradients found{.dx = at::empty_like(norm.x), .dweight = results[0], .dbias = results[1]};
  if (norm.has_residual) found.dresidual = at::empty_like(norm.x);
  launcher(image_rows(norm.x, kBackwardBlocks),
           {.dy = read(dy),
            .x = read(norm.x),
            .y = has_bits ? nullptr : read(norm.kept),
            .passed = has_bits ? read<uint8_t>(norm.kept) : nullptr,
            .mean = read<float>(norm.moments[0]),
            .rstd = read<float>(norm.moments[1]),
            .scale = read<float>(norm.moments[2]),
            .shift = read<float>(norm.moments[3]),
            .relu = norm.relu,
            .partials = write<float>(partials),
            .dweight = write<float>(found.dweight),
            .dbias = write<float>(found.dbias),
            .slope = write<float>(results[2]),
            .offset = write<float>(results[3]),
            .dx = write(found.dx),
            .dresidual = write(found.dresidual)},
           current_stream());
  check_launches();
  return found;
}

struct ImageNorm : torch::autograd::Function<ImageNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const at::Tensor& running_mean, const at::Tensor& running_var, double momentum, double eps,
                            bool relu) {
    const at::Tensor moments = batch_moments_of(x, {}, {weight, bias, running_mean, running_var, momentum, eps});
    const auto [y, kept] = batch_applied(x, moments, residual.value_or(at::Tensor()), relu);
    context->save_for_backward({x, moments, kept});
    context->saved_data["relu"] = relu;
    context->saved_data["has_residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused batch norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const NormGradients found = batch_gradients(gradients[0].contiguous(at::MemoryFormat::ChannelsLast),
                                                {.x = saved[0],
                                                 .moments = saved[1],
                                                 .kept = saved[2],
                                                 .relu = context->saved_data["relu"].toBool(),
                                                 .has_residual = context->saved_data["has_residual"].toBool()});
    return {found.dx, found.dweight, found.dbias, found.dresidual, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool is_image(const at::Tensor& x) { return x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast); }

bool are_per_channel(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.scalar_type() == at::kFloat && t.is_contiguous(); });
}

at::Tensor batch_moments_of(const at::Tensor& x, const at::Tensor& sums, const NormOperands& norm) {
  const ImageRows images = image_rows(x, kForwardBlocks);
  const at::Tensor partials = sums.defined() ? at::Tensor() : per_channel(x, 3 * images.parts);
  at::Tensor moments = per_channel(x, 4);
  if (partials.defined()) batch_statistics(images, read(x), write<float>(partials), current_stream());
  batch_moments(images,
                {.partials = read<float>(partials),
                 .sums = read<float>(sums),
                 .weight = read<float>(norm.weight),
                 .bias = read<float>(norm.bias),
                 .eps = static_cast<float>(norm.eps),
                 .momentum = static_cast<float>(norm.momentum),
                 .mean = write<float>(moments[0]),
                 .rstd = write<float>(moments[1]),
                 .scale = write<float>(moments[2]),
                 .shift = write<float>(moments[3]),
                 .running_mean = write<float>(norm.running_mean),
                 .running_var = write<float>(norm.running_var)},
                current_stream());
  check_launches();
  return moments;
}

AppliedImages batch_applied(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& residual, bool relu) {
  AppliedImages applied{.y = at::empty_like(x)};
  const ImageRows images = image_rows(x, kForwardBlocks);
  BatchApply call{.x = read(x),
                  .residual = read(residual),
                  .scale = read<float>(moments[2]),
                  .shift = read<float>(moments[3]),
                  .relu = relu,
                  .y = write(applied.y),
                  .passed = nullptr};
  if (residual.defined() && relu) {
    const int64_t bytes = passed_bytes(images, call);
    applied.kept = bytes > 0 ? at::empty({bytes}, x.options().dtype(at::kByte)) : applied.y;
    if (bytes > 0) call.passed = write<uint8_t>(applied.kept);
  }
  batch_apply(images, call, current_stream());
  check_launches();
  return applied;
}

NormGradients batch_gradients(const at::Tensor& dy, const AppliedNorm& norm) {
  return gradients_by(batch_gradient, dy, norm, per_channel(norm.x, 2 * image_rows(norm.x, kBackwardBlocks).parts));
}

NormGradients batch_gradients_of_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& moments,
                                      const at::Tensor& sums) {
  return gradients_by(batch_gradient_of_sums, dy, {.x = x, .moments = moments}, sums);
}

}  // namespace cuda

namespace gpu {

OpImpl batch_norm(const Tensors& inputs, const BatchNormOptions& options, bool relu) {
  const at::Tensor &x = inputs[0], &residual = inputs[1];
  const bool takes = options.training && is_here(x) && cuda::is_image(x) && x.numel() > x.size(1) &&
                     cuda::are_per_channel({inputs[2], inputs[3], inputs[4], inputs[5]}) &&
                     (!residual.defined() || (cuda::is_image(residual) && residual.sizes() == x.sizes() &&
                                              residual.scalar_type() == x.scalar_type()));
  if (!takes) return {};
  return [options, relu](const Tensors& t) {
    const auto residual_of = t[1].defined() ? std::optional(t[1]) : std::nullopt;
    return Tensors{
        cuda::ImageNorm::apply(t[0], t[2], t[3], residual_of, t[4], t[5], options.momentum, options.eps, relu)};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
