#include <cmath>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "float_kernels.hpp"
#include "fused.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::ops::cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

BatchPlanes planes_of(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  return {.images = x.size(0),
          .channels = x.size(1),
          .pixels = x.size(2) * x.size(3),
          .x = x.const_data_ptr<float>(),
          .scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
          .shift = shift.defined() ? shift.const_data_ptr<float>() : nullptr};
}

size_t count_of(const BatchPlanes& planes) { return static_cast<size_t>(planes.images * planes.channels); }

at::Tensor per_channel(const BatchPlanes& planes) { return at::empty({planes.channels}, at::kFloat); }

/// The sum over images of each channel, in double and in order: the same on any number of threads.
std::vector<double> totals(const BatchPlanes& planes, const std::vector<float>& of_planes) {
  std::vector<double> sums(static_cast<size_t>(planes.channels));
  for (size_t i = 0; i < of_planes.size(); ++i) sums[i % sums.size()] += of_planes[i];
  return sums;
}

struct Moments {
  std::vector<double> mean, squares;  // [channels]; squares: sum of squared distances from the mean
};

Moments moments_of(const BatchPlanes& planes) {
  std::vector<float> means(count_of(planes)), squares(means.size());
  float_kernels().batch_statistics(at::get_num_threads(), planes, means.data(), squares.data());
  Moments all{totals(planes, means), totals(planes, squares)};
  for (double& mean : all.mean) mean /= static_cast<double>(planes.images);
  for (size_t i = 0; i < means.size(); ++i) {  // what the planes' means are apart from the mean of all
    const double distance = means[i] - all.mean[i % all.mean.size()];
    all.squares[i % all.mean.size()] += static_cast<double>(planes.pixels) * distance * distance;
  }
  return all;
}

struct BatchNormRelu : torch::autograd::Function<BatchNormRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                            double eps) {
    const BatchPlanes shape = planes_of(x, {}, {});
    const Moments moments = moments_of(shape);
    const at::Tensor mean = per_channel(shape), rstd = per_channel(shape), scale = per_channel(shape),
                     shift = per_channel(shape);
    const auto count = static_cast<double>(shape.images * shape.pixels);
    for (int64_t i = 0; i < shape.channels; ++i) {
      const double average = moments.mean[static_cast<size_t>(i)], squares = moments.squares[static_cast<size_t>(i)];
      const double inverse = 1 / std::sqrt(squares / count + eps);
      const double factor = weight.const_data_ptr<float>()[i] * inverse;
      mean.mutable_data_ptr<float>()[i] = static_cast<float>(average);
      rstd.mutable_data_ptr<float>()[i] = static_cast<float>(inverse);
      scale.mutable_data_ptr<float>()[i] = static_cast<float>(factor);
      shift.mutable_data_ptr<float>()[i] = static_cast<float>(bias.const_data_ptr<float>()[i] - average * factor);
      const auto follow = [&](const at::Tensor& running, double value) {
        float& kept = running.mutable_data_ptr<float>()[i];
        kept = static_cast<float>((1 - momentum) * kept + momentum * value);
      };
      follow(running_mean, average);
      follow(running_var, squares / (count - 1));
    }
    at::Tensor y = at::empty_like(x);
    float_kernels().batch_norm_relu(at::get_num_threads(), planes_of(x, scale, shift),
                                    residual ? residual->const_data_ptr<float>() : nullptr,
                                    y.mutable_data_ptr<float>());
    context->save_for_backward({x, mean, rstd, scale, shift, residual ? y : at::Tensor()});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused batch norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[1], &rstd = saved[2], &scale = saved[3], &y = saved[5];
    const at::Tensor dy = gradients[0].contiguous();
    const BatchPlanes planes = planes_of(x, scale, saved[4]);
    const at::Tensor slope = per_channel(planes), offset = per_channel(planes), dweight = per_channel(planes),
                     dbias = per_channel(planes);
    const BatchGradient gradient{.dy = dy.const_data_ptr<float>(),
                                 .y = y.defined() ? y.const_data_ptr<float>() : nullptr,
                                 .mean = mean.const_data_ptr<float>(),
                                 .slope = slope.const_data_ptr<float>(),
                                 .offset = offset.const_data_ptr<float>()};
    std::vector<float> plane_g(count_of(planes)), plane_gx(plane_g.size());
    float_kernels().batch_sums(at::get_num_threads(), planes, gradient, plane_g.data(), plane_gx.data());
    const auto sum_g = totals(planes, plane_g), sum_gx = totals(planes, plane_gx);
    for (int64_t i = 0; i < planes.channels; ++i) {
      const double g = sum_g[static_cast<size_t>(i)], inverse = rstd.const_data_ptr<float>()[i];
      const double gh = sum_gx[static_cast<size_t>(i)] * inverse;  // with h the normalised x
      const double factor = scale.const_data_ptr<float>()[i] / static_cast<double>(planes.images * planes.pixels);
      dbias.mutable_data_ptr<float>()[i] = static_cast<float>(g);
      dweight.mutable_data_ptr<float>()[i] = static_cast<float>(gh);
      slope.mutable_data_ptr<float>()[i] = static_cast<float>(-factor * gh * inverse);
      offset.mutable_data_ptr<float>()[i] = static_cast<float>(-factor * g);
    }
    const at::Tensor dx = at::empty_like(x), dresidual = y.defined() ? at::empty_like(x) : at::Tensor();
    float_kernels().batch_norm_relu_backward(at::get_num_threads(), planes, gradient, dx.mutable_data_ptr<float>(),
                                             y.defined() ? dresidual.mutable_data_ptr<float>() : nullptr);
    return {dx, dweight, dbias, dresidual, {}, {}, {}, {}};
  }
};

bool is_fusible_image(const at::Tensor& x) { return x.dim() == 4 && is_fusible(x); }

}  // namespace

bool is_fusible_batch(const at::Tensor& x, const at::Tensor& residual) {
  return is_fusible_image(x) && x.numel() > x.size(1) &&
         (!residual.defined() || (is_fusible_image(residual) && residual.sizes() == x.sizes()));
}

at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& residual, const RunningStatistics& running, double eps) {
  return BatchNormRelu::apply(x, weight, bias, residual.defined() ? std::optional(residual) : std::nullopt,
                              running.mean, running.variance, running.momentum, eps);
}

}  // namespace gputrain::ops::cpu
