#include "gputrain/ops/conv_norm.hpp"

#include <algorithm>
#include <string>

#include "dispatch/gpu.hpp"
#include "gputrain/comm/group.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

at::Tensor one_by_one(const Policy& policy, at::Tensor x, const std::vector<ConvNormLayer>& layers,
                      const at::Tensor& residual, LastRelu last_relu) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const ConvNormLayer& l = layers[i];
    const bool is_last = i + 1 == layers.size();
    x = conv2d(policy, x, l.weight, l.bias, l.stride, l.padding, l.dilation, l.groups);
    x = is_last && last_relu == LastRelu::no
            ? batch_norm(x, l.norm_weight, l.norm_bias, l.running_mean, l.running_var, l.norm)
            : batch_norm_relu(x, l.norm_weight, l.norm_bias, l.running_mean, l.running_var, l.norm,
                              is_last ? residual : at::Tensor());
  }
  return x;
}

/// Returns whether a layer can be joined: no dilation, no groups, this rank's statistics, no bias, which the norm would
/// cancel.
bool can_be_joined(const ConvNormLayer& layer) {
  if (layer.dilation != 1 || layer.groups != 1) return false;
  return layer.norm.training && (layer.norm.group == nullptr || layer.norm.group->size() == 1) && !layer.bias.defined();
}

/// Returns the inputs in the order of gpu::conv_norms().
Tensors inputs_of(const Policy& policy, const at::Tensor& x, const std::vector<ConvNormLayer>& layers,
                  const at::Tensor& residual) {
  Tensors inputs{cast(x, policy.compute), residual};
  for (const ConvNormLayer& l : layers) {
    inputs.insert(inputs.end(), {operand(l.weight, policy.compute), l.norm_weight, l.norm_bias});
  }
  for (const ConvNormLayer& l : layers) inputs.insert(inputs.end(), {l.running_mean, l.running_var});
  return inputs;
}

/// Returns the layers with these inputs in place of their own tensors.
std::vector<ConvNormLayer> with_inputs(std::vector<ConvNormLayer> layers, const Tensors& inputs) {
  const size_t running = 2 + 3 * layers.size();
  for (size_t i = 0; i < layers.size(); ++i) {
    ConvNormLayer& l = layers[i];
    l.weight = inputs[2 + 3 * i];
    l.norm_weight = inputs[3 + 3 * i];
    l.norm_bias = inputs[4 + 3 * i];
    l.running_mean = inputs[running + 2 * i];
    l.running_var = inputs[running + 2 * i + 1];
  }
  return layers;
}

}  // namespace

at::Tensor conv_norms(const Policy& policy, const at::Tensor& x, const std::vector<ConvNormLayer>& layers,
                      const at::Tensor& residual, LastRelu last_relu) {
  GPUTRAIN_ASSERT(!residual.defined() || last_relu == LastRelu::yes, "a residual needs the last ReLU");
  const bool is_joined = x.is_floating_point() && std::all_of(layers.begin(), layers.end(), can_be_joined);
  if (!is_joined || !gpu::is_here(x)) return one_by_one(policy, x, layers, residual, last_relu);
  std::string name = "conv_norms";
  std::vector<gpu::ConvNormShape> shapes;
  for (const ConvNormLayer& l : layers) {
    name += " stride " + std::to_string(l.stride) + " padding " + std::to_string(l.padding);
    shapes.push_back({.stride = l.stride, .padding = l.padding, .norm = l.norm});
  }
  if (last_relu == LastRelu::yes) name += " relu";
  const Tensors inputs = inputs_of(policy, x, layers, residual);
  const OpImpl reference = [&](const Tensors& t) {
    // Compute in the inputs' type: policy.compute, or the wider type of the exact results.
    const Policy as_given{.compute = t[0].scalar_type()};
    return Tensors{one_by_one(as_given, t[0], with_inputs(layers, t), t[1], last_relu)};
  };
  return run(name, inputs, {.batched = 2, .differentiable = 2 + 3 * layers.size(), .whole = true},
             gpu::conv_norms(inputs, shapes, last_relu == LastRelu::yes), reference)[0];
}

}  // namespace gputrain::ops
