#include "gputrain/ops/linear.hpp"

#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cpu/conv2d.hpp"
#include "cpu/dnn_linear.hpp"
#include "dispatch/gpu.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Puts a weight's copy on the autograd graph in place of a cast: the gradient is the same.
struct ReadCopy : torch::autograd::Function<ReadCopy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& copy) {
    context->saved_data["type"] = weight.scalar_type();
    return at::Tensor(copy.tensor_data());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].to(context->saved_data["type"].toScalarType()), {}};
  }
};

/// Returns the copy in the weight's place on the graph; a cast if there is no copy.
at::Tensor copy_or_cast(const at::Tensor& weight, const at::Tensor& copy, at::ScalarType type) {
  if (!copy.defined()) return cast(weight, type);
  return at::GradMode::is_enabled() && weight.requires_grad() ? ReadCopy::apply(weight, copy) : copy;
}

at::Tensor copy_of(const at::Tensor& weight, at::ScalarType type) {
  return weight.defined() && weight.scalar_type() != type ? device::working_view(weight, type) : at::Tensor();
}

at::Tensor times_in_out(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor product = bias.defined() ? at::addmm(bias, rows, matrix) : at::mm(rows, matrix);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = matrix.size(1);
  return at::_unsafe_view(product, sizes);  // no view: if it is overwritten, autograd copies gradients
}

/// Appends rows of zeros to a matrix, or zeros to a vector; undefined stays undefined.
at::Tensor padded(const at::Tensor& tensor, int64_t rows) {
  if (!tensor.defined() || tensor.size(0) >= rows) return tensor;
  const int64_t missing = rows - tensor.size(0);
  return at::constant_pad_nd(tensor,
                             tensor.dim() == 1 ? at::IntArrayRef{0, missing} : at::IntArrayRef{0, 0, 0, missing});
}

/// Returns output elements of a dense layer per input element, rounded up.
int64_t growth_of(const at::Tensor& x, bool in_out, const at::Tensor& weight) {
  return ceil_divide(weight.size(in_out ? 1 : 0), x.size(-1));
}

/// Inputs {x, weight, bias, copies of both in x's type}; copies may be undefined.
at::Tensor dense(Tensors inputs, bool in_out, int64_t columns = 0) {
  const bool is_on_gpu = gpu::is_here(inputs[0]);
  const OpImpl reference = [in_out, columns, is_on_gpu](const Tensors& t) {
    const at::ScalarType read = t[0].scalar_type();
    // A comparison may run on part of the outputs, of copies that are padded already.
    const int64_t wanted = is_on_gpu && columns > 0 && t[3].defined() ? t[3].size(0) : columns;
    const auto unpadded = [columns](const at::Tensor& copy, const at::Tensor& of) {
      return columns > 0 && copy.defined() ? copy.narrow(0, 0, of.size(0)) : copy;
    };
    const at::Tensor matrix = copy_or_cast(t[1], unpadded(t[3], t[1]), read);
    const at::Tensor added = padded(copy_or_cast(t[2], unpadded(t[4], t[2]), read), wanted);
    if (cpu::dnn_is_faster_here() && cpu::dnn_takes(t[0], matrix))
      return Tensors{cpu::dnn_linear(t[0], padded(matrix, wanted), added, in_out)};
    return Tensors{in_out ? times_in_out(t[0], matrix, added) : at::linear(t[0], padded(matrix, wanted), added)};
  };
  if (!is_on_gpu) return reference(inputs)[0];
  for (const size_t copy : {size_t{3}, size_t{4}}) inputs[copy] = padded(inputs[copy], columns);
  // A large last layer is compared on few of its rows and of its outputs. There, ATen's work per weight, such as the
  // cast of its gradient, counts too much and favours our way. This does no harm: our products use the fastest
  // algorithm that cuBLASLt offers for the full size, and so are hardly ever slower than ATen's. All rows would need
  // about thirty more bytes per logit, and all outputs forty per weight.
  const KernelAutotuner::Inputs kinds{
      .batched = 1,
      .differentiable = 3,
      .growth = growth_of(inputs[0], in_out, inputs[3].defined() ? inputs[3] : inputs[1]),
      .has_outputs_by_row = !in_out};
  return run(in_out ? "linear_in_out" : "linear", inputs, kinds, gpu::linear(inputs, in_out), reference)[0];
}

/// Casts x to the compute type and appends the parameters' copies, undefined if there is none. A parameter in the
/// compute type, frozen or trained without fp32 values, is its own copy.
Tensors with_copies(const Policy& policy, const Tensors& x_and_parameters) {
  Tensors inputs = x_and_parameters;
  inputs[0] = cast(inputs[0], policy.compute);
  for (size_t i = 1; i < x_and_parameters.size(); ++i) {
    const at::Tensor& parameter = x_and_parameters[i];
    const bool is_own_copy =
        policy.compute != policy.master && parameter.defined() && parameter.scalar_type() == policy.compute;
    inputs.push_back(is_own_copy ? parameter.detach() : copy_of(parameter, policy.compute));
  }
  return inputs;
}

/// Returns whether to convolve 16-bit values in fp32, as 16-bit units do inside. Most CPUs have no fp16 units, and
/// ATen's own loops take minutes. oneDNN's bf16 leaves the weight's gradient unwritten if the stride is wider than the
/// image.
bool goes_through_fp32(const at::Tensor& images, int64_t stride) {
  if (!images.is_cpu()) return false;
  return images.scalar_type() == at::kHalf || (images.scalar_type() == at::kBFloat16 && images.size(-1) < stride);
}

}  // namespace

at::Tensor cast(const at::Tensor& tensor, at::ScalarType type) {
  // Skip the dispatcher if there is nothing to do, as always in fp32.
  return !tensor.defined() || tensor.scalar_type() == type ? tensor : tensor.to(type);
}

at::Tensor operand(const at::Tensor& parameter, at::ScalarType type) {
  return copy_or_cast(parameter, copy_of(parameter, type), type);
}

at::Tensor linear(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dense(with_copies(policy, {x, weight, bias}), /*in_out=*/false);
}

at::Tensor linear_in_out(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dense(with_copies(policy, {x, weight, bias}), /*in_out=*/true);
}

std::vector<at::Tensor> linear_each(const Policy& policy, const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  const size_t layers = weights.size();
  const OpImpl reference = [layers](const Tensors& t) {
    Tensors results;
    for (size_t i = 1; i <= layers; ++i) results.push_back(dense({t[0], t[i], {}, t[i + layers], {}}, false));
    return results;
  };
  Tensors given{x};
  given.insert(given.end(), weights.begin(), weights.end());
  const Tensors inputs = with_copies(policy, given);
  if (!gpu::is_here(inputs[0])) return reference(inputs);
  KernelAutotuner::Inputs kinds{.batched = 1, .differentiable = 1 + layers, .growth = 0};
  for (const at::Tensor& weight : weights) kinds.growth += growth_of(inputs[0], false, weight);
  return run("linear_each", inputs, kinds, gpu::linear_each(inputs), reference);
}

std::vector<at::Tensor> split_columns(const at::Tensor& y, const std::vector<int64_t>& columns) {
  return gpu::is_here(y) ? gpu::split_columns(y, columns) : y.split_with_sizes(columns, -1);
}

at::Tensor linear_padded(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         int64_t columns) {
  return dense(with_copies(policy, {x, weight, bias}), /*in_out=*/false, is_recorded() ? 0 : columns);
}

at::Tensor feed_forward(const Policy& policy, const at::Tensor& x, const FeedForwardLayers& layers) {
  const OpImpl reference = [in_out = layers.in_out, activation = layers.activation](const Tensors& t) {
    const at::Tensor inner = activate(dense({t[0], t[1], t[2], t[5], t[6]}, in_out), activation);
    return Tensors{dense({inner, t[3], t[4], t[7], t[8]}, in_out)};
  };
  const Tensors inputs = with_copies(policy, {x, layers.weight_1, layers.bias_1, layers.weight_2, layers.bias_2});
  if (!gpu::is_here(inputs[0])) return reference(inputs)[0];
  // Whole: a plan of cuDNN is for one number of rows.
  const KernelAutotuner::Inputs kinds{.batched = 1,
                                      .differentiable = 5,
                                      .growth = growth_of(inputs[0], layers.in_out, layers.weight_1),
                                      .whole = true,
                                      .version = 3};
  const std::string name = std::string(layers.activation == Activation::gelu ? "gelu" : "gelu_tanh") +
                           (layers.in_out ? " feed_forward_in_out" : " feed_forward");
  return run(name, inputs, kinds, gpu::feed_forward(inputs, layers.in_out, layers.activation), reference)[0];
}

at::Tensor conv2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  const at::Tensor images = cast(x, policy.compute), kernel = operand(weight, policy.compute),
                   added = operand(bias, policy.compute);
  if (cpu::own_conv_gradient_is_faster_here() && cpu::conv2d_takes(images, kernel, dilation, groups))
    return cpu::conv2d(images, kernel, added, stride, padding);
  const auto convolve = [=](const at::Tensor& in, const at::Tensor& by, const at::Tensor& plus) {
    return at::conv2d(in, by, plus, {stride, stride}, {padding, padding}, {dilation, dilation}, groups);
  };
  if (!goes_through_fp32(images, stride)) return convolve(images, kernel, added);
  return convolve(images.to(at::kFloat), kernel.to(at::kFloat), cast(added, at::kFloat)).to(policy.compute);
}

at::Tensor conv_transpose2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            int64_t stride) {
  const at::Tensor images = cast(x, policy.compute), kernel = operand(weight, policy.compute),
                   added = operand(bias, policy.compute);
  // Most CPUs have no units of 16 bits that ATen would use here, as in conv2d().
  const bool is_narrow = images.is_cpu() && images.element_size() < 4;
  const auto read = [&](const at::Tensor& tensor) { return is_narrow ? cast(tensor, at::kFloat) : tensor; };
  return cast(at::conv_transpose2d(read(images), read(kernel), read(added), {stride, stride}), policy.compute);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight) {
  const OpImpl reference = [](const Tensors& t) {
    // On a CPU, ATen adds up a row's gradients in the type of the table.
    const bool is_summed_wide = t[0].is_cpu() && t[0].requires_grad() && t[0].scalar_type() == at::kBFloat16;
    return Tensors{at::embedding(is_summed_wide ? cast(t[0], at::kFloat) : t[0], t[1])};
  };
  if (!gpu::is_here(weight)) return reference({weight, tokens})[0];
  return run("embedding", {weight, tokens}, {.batched = 0, .differentiable = 1}, gpu::embedding(weight, tokens),
             reference)[0];
}

}  // namespace gputrain::ops
