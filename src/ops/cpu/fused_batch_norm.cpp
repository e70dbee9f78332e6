#include <algorithm>
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

constexpr at::MemoryFormat kPixelByPixel = at::MemoryFormat::ChannelsLast;

BatchRows rows_of(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  return {.rows = x.size(0) * x.size(2) * x.size(3),
          .channels = x.size(1),
          .x = x.const_data_ptr<float>(),
          .scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
          .shift = shift.defined() ? shift.const_data_ptr<float>() : nullptr};
}

at::Tensor per_channel(const BatchRows& batch) { return at::empty({batch.channels}, at::kFloat); }

/// Megabytes for large images; the allocator reuses them in the next step.
at::Tensor per_partial(const BatchRows& batch) {
  return at::empty({partials_of(batch.rows), batch.channels}, at::kFloat);
}

/// Sums, for each channel, value(rows of the partial sum, channel, index in [partials, channels]) in the order of the
/// partials: the same bits for any number of threads.
template <class Value>
std::vector<double> over_partials(const BatchRows& batch, const Value& value) {
  constexpr int64_t kTogether = 32, kGrainValues = 8192;  // channels per thread: no shared cache lines
  const int64_t partials = partials_of(batch.rows), groups = (batch.channels + kTogether - 1) / kTogether;
  std::vector<double> sums(static_cast<size_t>(batch.channels));
  at::parallel_for(0, groups, kGrainValues / (partials * kTogether) + 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTogether, count = std::min(batch.channels, end * kTogether) - first;
    std::vector<double> own(static_cast<size_t>(count));
    for (int64_t partial = 0; partial < partials; ++partial) {
      const auto rows = static_cast<double>(std::min(kRowsPerPartial, batch.rows - partial * kRowsPerPartial));
      for (int64_t i = 0; i < count; ++i) {
        own[static_cast<size_t>(i)] += value(rows, first + i, partial * batch.channels + first + i);
      }
    }
    std::copy(own.begin(), own.end(), sums.begin() + first);
  });
  return sums;
}

std::vector<double> totals(const BatchRows& batch, const at::Tensor& of_partials) {
  const auto* parts = of_partials.const_data_ptr<float>();
  return over_partials(batch, [parts](double, int64_t, int64_t at) { return static_cast<double>(parts[at]); });
}

struct Moments {
  std::vector<double> mean, squares;  // [channels]; squares: sum of squared distances from the mean
};

Moments moments_of(const BatchRows& batch) {
  const at::Tensor of_means = per_partial(batch), of_squares = per_partial(batch);
  auto *means = of_means.mutable_data_ptr<float>(), *squares = of_squares.mutable_data_ptr<float>();
  float_kernels().batch_statistics(at::get_num_threads(), batch, means, squares);
  Moments all;
  all.mean = over_partials(batch, [means](double rows, int64_t, int64_t at) { return rows * means[at]; });
  for (double& mean : all.mean) mean /= static_cast<double>(batch.rows);
  all.squares = over_partials(batch, [&](double rows, int64_t channel, int64_t at) {
    const double distance = means[at] - all.mean[static_cast<size_t>(channel)];  // partial mean - total mean
    return squares[at] + rows * distance * distance;
  });
  return all;
}

struct BatchNormRelu : torch::autograd::Function<BatchNormRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                            double eps) {
    const BatchRows shape = rows_of(x, {}, {});
    const Moments moments = moments_of(shape);
    const at::Tensor mean = per_channel(shape), rstd = per_channel(shape), scale = per_channel(shape),
                     shift = per_channel(shape);
    const auto count = static_cast<double>(shape.rows);
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
    float_kernels().batch_norm_relu(at::get_num_threads(), rows_of(x, scale, shift),
                                    residual ? residual->const_data_ptr<float>() : nullptr,
                                    y.mutable_data_ptr<float>());
    context->save_for_backward({x, mean, rstd, scale, shift, residual ? y : at::Tensor()});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused batch norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[1], &rstd = saved[2], &scale = saved[3], &y = saved[5];
    const at::Tensor dy = gradients[0].contiguous(kPixelByPixel);
    const BatchRows batch = rows_of(x, scale, saved[4]);
    const at::Tensor slope = per_channel(batch), offset = per_channel(batch), dweight = per_channel(batch),
                     dbias = per_channel(batch);
    const BatchGradient gradient{.dy = dy.const_data_ptr<float>(),
                                 .y = y.defined() ? y.const_data_ptr<float>() : nullptr,
                                 .mean = mean.const_data_ptr<float>(),
                                 .slope = slope.const_data_ptr<float>(),
                                 .offset = offset.const_data_ptr<float>()};
    const at::Tensor partial_g = per_partial(batch), partial_gx = per_partial(batch);
    float_kernels().batch_sums(at::get_num_threads(), batch, gradient, partial_g.mutable_data_ptr<float>(),
                               partial_gx.mutable_data_ptr<float>());
    const auto sum_g = totals(batch, partial_g), sum_gx = totals(batch, partial_gx);
    for (int64_t i = 0; i < batch.channels; ++i) {
      const double g = sum_g[static_cast<size_t>(i)], inverse = rstd.const_data_ptr<float>()[i];
      const double gh = sum_gx[static_cast<size_t>(i)] * inverse;  // h: the normalised x
      const double factor = scale.const_data_ptr<float>()[i] / static_cast<double>(batch.rows);
      dbias.mutable_data_ptr<float>()[i] = static_cast<float>(g);
      dweight.mutable_data_ptr<float>()[i] = static_cast<float>(gh);
      slope.mutable_data_ptr<float>()[i] = static_cast<float>(-factor * gh * inverse);
      offset.mutable_data_ptr<float>()[i] = static_cast<float>(-factor * g);
    }
    const at::Tensor dx = at::empty_like(x), dresidual = y.defined() ? at::empty_like(x) : at::Tensor();
    float_kernels().batch_norm_relu_backward(at::get_num_threads(), batch, gradient, dx.mutable_data_ptr<float>(),
                                             y.defined() ? dresidual.mutable_data_ptr<float>() : nullptr);
    return {dx, dweight, dbias, dresidual, {}, {}, {}, {}};
  }
};

bool is_fusible_image(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() == 4 && x.is_contiguous(kPixelByPixel) && x.numel() > 0;
}

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
