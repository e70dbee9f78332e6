#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../gpu.hpp"
#include "batch_norm.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

ImageRows image_rows(const at::Tensor& x) {
  const int64_t channels = x.size(1), rows = x.numel() / channels, strips = std::max<int64_t>(1, channels / 256);
  const int64_t most = std::max<int64_t>(1, rows * std::min<int64_t>(channels, 256) / 8192);
  return {.element = element_of(x),
          .rows = rows,
          .channels = channels,
          .parts = static_cast<int>(std::clamp<int64_t>(8 * multiprocessors() / strips, 1, most))};
}

at::Tensor per_channel(const at::Tensor& x, int64_t count = 1) {
  return at::empty({count, x.size(1)}, x.options().dtype(at::kFloat));
}

struct ImageNorm : torch::autograd::Function<ImageNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const at::Tensor& running_mean, const at::Tensor& running_var, double momentum, double eps,
                            bool relu) {
    const ImageRows images = image_rows(x);
    const at::Tensor partials = per_channel(x, 3 * images.parts), found = per_channel(x, 4), y = at::empty_like(x);
    batch_statistics(images, read(x), write<float>(partials), current_stream());
    batch_moments(images,
                  {.partials = read<float>(partials),
                   .weight = read<float>(weight),
                   .bias = read<float>(bias),
                   .eps = static_cast<float>(eps),
                   .momentum = static_cast<float>(momentum),
                   .mean = write<float>(found[0]),
                   .rstd = write<float>(found[1]),
                   .scale = write<float>(found[2]),
                   .shift = write<float>(found[3]),
                   .running_mean = write<float>(running_mean),
                   .running_var = write<float>(running_var)},
                  current_stream());
    batch_apply(images,
                {.x = read(x),
                 .residual = residual ? read(*residual) : nullptr,
                 .scale = read<float>(found[2]),
                 .shift = read<float>(found[3]),
                 .relu = relu,
                 .y = write(y)},
                current_stream());
    check_launches();
    context->save_for_backward({x, found, residual && relu ? y : at::Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["has_residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused batch norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &found = saved[1];
    const at::Tensor dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast), dx = at::empty_like(x);
    const bool has_residual = context->saved_data["has_residual"].toBool();
    const at::Tensor dresidual = has_residual ? at::empty_like(x) : at::Tensor();
    const ImageRows images = image_rows(x);
    const at::Tensor partials = per_channel(x, 2 * images.parts), results = per_channel(x, 4);
    batch_gradient(images,
                   {.dy = read(dy),
                    .x = read(x),
                    .y = read(saved[2]),
                    .mean = read<float>(found[0]),
                    .rstd = read<float>(found[1]),
                    .scale = read<float>(found[2]),
                    .shift = read<float>(found[3]),
                    .relu = context->saved_data["relu"].toBool(),
                    .partials = write<float>(partials),
                    .dweight = write<float>(results[0]),
                    .dbias = write<float>(results[1]),
                    .slope = write<float>(results[2]),
                    .offset = write<float>(results[3]),
                    .dx = write(dx),
                    .dresidual = write(dresidual)},
                   current_stream());
    check_launches();
    return {dx, results[0], results[1], dresidual, {}, {}, {}, {}, {}};
  }
};

bool is_image(const at::Tensor& x) { return x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast); }

bool are_floats(const Tensors& inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& t) { return t.scalar_type() == at::kFloat && t.is_contiguous(); });
}

}  // namespace
}  // namespace cuda

namespace gpu {

Way batch_norm(const Tensors& inputs, const BatchNormOptions& options, bool relu) {
  const at::Tensor &x = inputs[0], &residual = inputs[3];
  const bool takes = options.training && is_here(x) && cuda::is_image(x) && x.numel() > x.size(1) &&
                     cuda::are_floats({inputs[1], inputs[2], inputs[4], inputs[5]}) &&
                     (!residual.defined() || (cuda::is_image(residual) && residual.sizes() == x.sizes() &&
                                              residual.scalar_type() == x.scalar_type()));
  if (!takes) return {};
  return [options, relu](const Tensors& t) {
    const auto residual_of = t[3].defined() ? std::optional(t[3]) : std::nullopt;
    return Tensors{
        cuda::ImageNorm::apply(t[0], t[1], t[2], residual_of, t[4], t[5], options.momentum, options.eps, relu)};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
