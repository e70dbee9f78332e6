#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../cudnn/conv_sums.hpp"
#include "gputrain/core/error.hpp"
#include "image_norm.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using gpu::ConvNormShape;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor channels_last(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

/// Returns "name, stride 1, padding 1": the part of a choice's key that does not follow from the inputs.
std::string named(const char* name, const Convolution& conv) {
  return std::string(name) + ", stride " + std::to_string(conv.stride) + ", padding " + std::to_string(conv.padding);
}

struct Normed {
  at::Tensor y, moments;
};

/// Returns the convolution's result and its moments.
Normed convolved(const at::Tensor& x, const Convolution& conv, const NormOperands& norm) {
  const auto finished = [conv, norm](const SummedImages& found, const Tensors& t) {
    const at::Tensor moments = batch_moments_of(found.y, found.sums, {t[2], t[3], t[4], t[5], norm.momentum, norm.eps});
    return Tensors{found.y, moments[0], moments[1], moments};  // mean and rstd separately: compared each by its size
  };
  const auto conv_of = [conv](const Tensors& t) { return Convolution{t[1], conv.stride, conv.padding}; };
  const OpImpl custom = [=](const Tensors& t) { return finished(convolution_sums(t[0], conv_of(t)), t); };
  const OpImpl reference = [=](const Tensors& t) {
    const at::Tensor y = at::conv2d(t[0], t[1], {}, {conv.stride, conv.stride}, {conv.padding, conv.padding});
    return finished({.y = channels_last(y)}, t);
  };
  const Tensors inputs{x, conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var};
  const Tensors found =
      ops::run(named("conv_moments", conv), inputs, {.batched = 1, .differentiable = 0, .whole = true},
               has_sums(x, conv) ? custom : OpImpl(), reference);
  return {.y = found[0], .moments = found[3]};
}

/// Returns the gradient of x or of the weight; the other one is undefined.
std::pair<at::Tensor, at::Tensor> conv_gradient(const at::Tensor& dy, const at::Tensor& x, const Convolution& conv,
                                                bool of_weight) {
  const auto [dx, dweight, none] = at::convolution_backward(
      dy, x, conv.weight, c10::nullopt, {conv.stride, conv.stride}, {conv.padding, conv.padding}, {1, 1},
      /*transposed=*/false, {0, 0}, /*groups=*/1, {!of_weight, of_weight, false});
  return {dx, dweight};
}

/// Computes the gradient through a convolution and the ReLU and norm before it. z: the norm's input.
NormGradients before_conv(const at::Tensor& dy, const Convolution& conv, const at::Tensor& z,
                          const at::Tensor& moments) {
  const auto listed = [](const NormGradients& found) { return Tensors{found.dx, found.dweight, found.dbias}; };
  const auto conv_of = [conv](const Tensors& t) { return Convolution{t[2], conv.stride, conv.padding}; };
  const OpImpl fused = [=](const Tensors& t) {
    const SummedImages g = convolution_gradient_sums(t[0], t[1], t[3], conv_of(t));
    return listed(batch_gradients_of_sums(g.y, t[1], t[3], g.sums));
  };
  const OpImpl reference = [=](const Tensors& t) {
    const at::Tensor dx = conv_gradient(t[0], t[1], conv_of(t), /*of_weight=*/false).first;
    return listed(batch_gradients(channels_last(dx), {.x = t[1], .moments = t[3], .relu = true}));
  };
  const Tensors found = ops::run(named("conv_norm_gradient", conv), {dy, z, conv.weight, moments},
                                 {.batched = 2, .differentiable = 0, .whole = true},
                                 has_gradient_sums(dy, conv) ? fused : OpImpl(), reference);
  return {.dx = found[0], .dweight = found[1], .dbias = found[2]};
}

/// Positions in gpu::conv_norms()'s inputs, without the residual.
struct Places {
  size_t layers;
  static size_t weight(size_t layer) { return 1 + 3 * layer; }
  size_t running(size_t layer) const { return 1 + 3 * layers + 2 * layer; }
  size_t count() const { return 1 + 5 * layers; }
};

Tensors without_residual(Tensors inputs) {
  inputs.erase(inputs.begin() + 1);
  return inputs;
}

NormOperands norm_of(at::TensorList inputs, const Places& at, size_t layer, const BatchNormOptions& options) {
  return {.weight = inputs[at.weight(layer) + 1],
          .bias = inputs[at.weight(layer) + 2],
          .running_mean = inputs[at.running(layer)],
          .running_var = inputs[at.running(layer) + 1],
          .momentum = options.momentum,
          .eps = options.eps};
}

struct ConvNorms : torch::autograd::Function<ConvNorms> {
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs, const std::optional<at::Tensor>& residual,
                            const std::vector<ConvNormShape>& layers, bool last_relu) {
    const Places at{layers.size()};
    std::vector<int64_t> strides, paddings;
    variable_list saved;
    at::Tensor x = inputs[0], kept;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& [stride, padding, options] = layers[i];
      const at::Tensor& weight = inputs[at.weight(i)];
      const bool is_last = i + 1 == layers.size();
      const Normed z = convolved(x, {weight, stride, padding}, norm_of(inputs, at, i, options));
      saved.insert(saved.end(), {x, weight, z.y, z.moments});
      AppliedImages applied = batch_applied(z.y, z.moments, is_last ? residual.value_or(at::Tensor()) : at::Tensor(),
                                            !is_last || last_relu);
      x = std::move(applied.y);
      kept = std::move(applied.kept);
      strides.push_back(stride);
      paddings.push_back(padding);
    }
    saved.push_back(kept);
    context->save_for_backward(saved);
    context->saved_data["strides"] = strides;
    context->saved_data["paddings"] = paddings;
    context->saved_data["last_relu"] = last_relu;
    context->saved_data["has_residual"] = residual.has_value();
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "fused convolutions and norms have no second derivative");
    const auto saved = context->get_saved_variables();
    const auto strides = context->saved_data["strides"].toIntVector(),
               paddings = context->saved_data["paddings"].toIntVector();
    const Places at{strides.size()};
    variable_list results(at.count() + 3);  // the residual, and two non-tensor arguments of forward()
    NormGradients norm =
        batch_gradients(channels_last(gradients[0]), {.x = saved[4 * at.layers - 2],
                                                      .moments = saved[4 * at.layers - 1],
                                                      .kept = saved[4 * at.layers],
                                                      .relu = context->saved_data["last_relu"].toBool(),
                                                      .has_residual = context->saved_data["has_residual"].toBool()});
    results[at.count()] = norm.dresidual;
    for (size_t i = at.layers; i-- > 0;) {
      const at::Tensor& x = saved[4 * i];
      const Convolution conv{saved[4 * i + 1], strides[i], paddings[i]};
      if (context->needs_input_grad(at.weight(i))) {
        results[at.weight(i)] = conv_gradient(norm.dx, x, conv, /*of_weight=*/true).second;
      }
      results[at.weight(i) + 1] = norm.dweight;
      results[at.weight(i) + 2] = norm.dbias;
      if (i > 0) {
        norm = before_conv(norm.dx, conv, saved[4 * i - 2], saved[4 * i - 1]);
      } else if (context->needs_input_grad(0)) {
        results[0] = conv_gradient(norm.dx, x, conv, /*of_weight=*/false).first;
      }
    }
    return results;
  }
};

bool is_taken(const Tensors& inputs, const at::Tensor& residual, const std::vector<ConvNormShape>& layers) {
  const at::Tensor& x = inputs[0];
  const Places at{layers.size()};
  const auto is_alike = [&](const at::Tensor& t) { return is_image(t) && t.scalar_type() == x.scalar_type(); };
  if (!takes_sums(x) || !is_image(x) || x.numel() == 0 || (residual.defined() && !is_alike(residual))) return false;
  int64_t height = x.size(2), width = x.size(3);
  for (size_t i = 0; i < layers.size(); ++i) {
    const size_t place = at.weight(i), running = at.running(i);
    const at::Tensor& weight = inputs[place];
    const auto shrink = [&](int64_t& size) {
      size = (size + 2 * layers[i].padding - weight.size(2)) / layers[i].stride + 1;
    };
    shrink(height);
    shrink(width);
    const bool has_spread = height > 0 && width > 0 && x.size(0) * height * width > 1;  // else ATen reports wrong sizes
    if (!has_spread || !is_alike(weight) || weight.size(2) != weight.size(3) ||
        !are_per_channel({inputs[place + 1], inputs[place + 2], inputs[running], inputs[running + 1]})) {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl conv_norms(const Tensors& inputs, const std::vector<ConvNormShape>& layers, bool last_relu) {
  if (!is_here(inputs[0]) || !cuda::is_taken(cuda::without_residual(inputs), inputs[1], layers)) return {};
  return [layers, last_relu](const Tensors& t) {
    const Tensors others = cuda::without_residual(t);
    const auto residual = t[1].defined() ? std::optional(t[1]) : std::nullopt;
    return Tensors{cuda::ConvNorms::apply(at::TensorList(others), residual, layers, last_relu)};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
