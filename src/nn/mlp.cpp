#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/mul.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/transformer.hpp"
#include "gputrain/ops/grouped_linear.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/split_layers.hpp"

namespace gputrain::nn {
namespace {

struct FeedForwardLayout {
  std::vector<const char*> inputs;  // one layer, or gate and up
  const char* output;
  Linear::Order order = Linear::Order::out_in;
};

FeedForwardLayout layout_of(const FeedForward::Options& options) {
  switch (options.naming) {
    case Naming::gpt2:
      return {.inputs = {"c_fc"}, .output = "c_proj", .order = Linear::Order::in_out};
    case Naming::phi3:
      return {.inputs = {"gate_up_proj"}, .output = "down_proj"};
    case Naming::gpt_neox:
      return {.inputs = {"dense_h_to_4h"}, .output = "dense_4h_to_h"};
    case Naming::bert:
      return {.inputs = {"intermediate.dense"}, .output = "output.dense"};
    case Naming::distilbert:
      return {.inputs = {"lin1"}, .output = "lin2"};
    case Naming::modernbert:
      return {.inputs = {"Wi"}, .output = "Wo"};
    case Naming::timm:
      return {.inputs = {"fc1"}, .output = "fc2"};
    case Naming::convnext:
      return {.inputs = {"3"}, .output = "5"};
    case Naming::llama:
      break;
  }
  if (options.gated) return {.inputs = {"gate_proj", "up_proj"}, .output = "down_proj"};
  return {.inputs = {"up_proj"}, .output = "down_proj"};
}

}  // namespace

FeedForward::FeedForward(const Context& context, const Options& options) : Module(context), options_(options) {
  GPUTRAIN_ASSERT(!options.gated || !ops::overwrites_input(options.activation), "a gate is used twice");
  const FeedForwardLayout layout = layout_of(options);
  Linear::Options first{.in = options.channels,
                        .out = options.inner,
                        .bias = options.bias,
                        .order = layout.order,
                        .weight_init = options.weight_init,
                        .shared = Linear::Shared::outputs};
  if (options.gated && layout.inputs.size() == 1) {
    first.out = 2 * options.inner;
    first.sections = {options.inner, options.inner};
  }
  for (const char* name : layout.inputs) inputs_.push_back(add_child<Linear>(name, context, first));
  output_ = add_child<Linear>(layout.output, context,
                              Linear::Options{.in = options.inner,
                                              .out = options.channels,
                                              .bias = options.bias,
                                              .order = layout.order,
                                              .weight_init = options.output_init,
                                              .shared = Linear::Shared::inputs});
}

bool FeedForward::is_one_operator() const {
  const bool is_plain = !options_.gated && !ops::overwrites_input(options_.activation) && options_.dropout == 0;
  const auto has_weight_alone = [](const Linear* layer) { return !layer->has_branch() && !layer->is_packed(); };
  return is_plain && context().tensor_group == nullptr && has_weight_alone(inputs_[0]) && has_weight_alone(output_) &&
         context().recompute != Recompute::selective;
}

at::Tensor FeedForward::forward(const at::Tensor& x) const {
  if (is_one_operator()) {
    return ops::feed_forward(context().policy, x,
                             {.weight_1 = inputs_[0]->weight(),
                              .bias_1 = inputs_[0]->bias(),
                              .weight_2 = output_->weight(),
                              .bias_2 = output_->bias(),
                              .in_out = options_.naming == Naming::gpt2,
                              .activation = options_.activation});
  }
  const bool drops = is_training() && options_.dropout > 0;
  return output_->forward(drops ? ops::dropout(inner(x), options_.dropout) : inner(x));
}

namespace {

std::vector<at::Tensor> weights_of(const std::vector<const Linear*>& layers) {
  std::vector<at::Tensor> weights;
  for (const Linear* layer : layers) weights.push_back(layer->weight());
  return weights;
}

std::vector<ops::FrozenMatrix> matrices_of(const std::vector<const Linear*>& layers) {
  std::vector<ops::FrozenMatrix> matrices;
  for (const Linear* layer : layers) matrices.push_back(layer->frozen_matrix());
  return matrices;
}

}  // namespace

std::vector<const Linear*> FeedForward::layer_of_each(const std::vector<FeedForward*>& all, size_t index) {
  std::vector<const Linear*> layers;
  for (const FeedForward* one : all) layers.push_back(index < one->inputs_.size() ? one->inputs_[index] : one->output_);
  return layers;
}

bool FeedForward::can_be_grouped(const std::vector<FeedForward*>& layers) {
  const FeedForward& first = *layers.front();
  if (first.options_.bias || first.options_.dropout > 0 || first.context().tensor_group != nullptr) return false;
  for (size_t i = 0; i <= first.inputs_.size(); ++i) {
    const std::vector<const Linear*> of_each = layer_of_each(layers, i);
    const auto all = [&](const auto& is_so) { return std::ranges::all_of(of_each, is_so); };
    if (!all([](const Linear* layer) { return !layer->has_branch(); })) return false;
    if (all([](const Linear* layer) { return layer->is_packed(); })) continue;
    const bool is_plain = all([](const Linear* layer) { return !layer->is_packed() && !layer->is_in_out(); });
    if (!is_plain || !ops::lie_evenly(first.context().policy, weights_of(of_each))) return false;
  }
  return true;
}

at::Tensor FeedForward::forward_grouped(const std::vector<FeedForward*>& layers, const at::Tensor& x,
                                        const at::Tensor& groups) {
  const FeedForward& first = *layers.front();
  const auto result_of = [&](size_t index, const at::Tensor& read) {
    const std::vector<const Linear*> of_each = layer_of_each(layers, index);
    const ops::Policy& policy = first.context().policy;
    return of_each.front()->is_packed() ? ops::grouped_linear(policy, read, groups, matrices_of(of_each))
                                        : ops::grouped_linear(policy, read, groups, weights_of(of_each));
  };
  const bool has_gate_apart = first.inputs_.size() == 2;
  return result_of(first.inputs_.size(), has_gate_apart ? first.gated(result_of(0, x), result_of(1, x))
                                                        : first.of_one_layer(result_of(0, x)));
}

at::Tensor FeedForward::inner(const at::Tensor& read) const {
  const at::Tensor x = ops::split_input(read, context().tensor_group);
  if (inputs_.size() == 2) {
    const std::vector<at::Tensor> both = forward_each(inputs_, x);
    return gated(both[0], both[1]);
  }
  return of_one_layer(inputs_[0]->forward(x));
}

at::Tensor FeedForward::of_one_layer(at::Tensor y) const {
  if (!options_.gated) return activated(std::move(y));
  const auto halves = ops::split_columns(y, {y.size(-1) / 2, y.size(-1) / 2});
  return gated(halves[0], halves[1]);
}

at::Tensor FeedForward::activated(at::Tensor inner) const {
  const auto activation = options_.activation;
  if (ops::overwrites_input(activation)) return ops::activate(std::move(inner), activation);
  const auto activate = [activation](const at::Tensor& in, const at::Tensor&) { return ops::activate(in, activation); };
  return recomputed_value(context().recompute, activate, inner);
}

at::Tensor FeedForward::gated(const at::Tensor& gate, const at::Tensor& up) const {
  const auto activation = options_.activation;
  if (activation == ops::Activation::silu) return recomputed_value(context().recompute, ops::swiglu, gate, up);
  const auto product = [activation](const at::Tensor& in, const at::Tensor& factor) {
    return at::mul(ops::activate(in, activation), factor);
  };
  return recomputed_value(context().recompute, product, gate, up);
}

}  // namespace gputrain::nn
