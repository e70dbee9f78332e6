#include "gputrain/nn/layers.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/recorded.hpp"
#include "gputrain/ops/split_layers.hpp"

namespace gputrain::nn {
namespace {

// Default of torch.nn's dense layers and convolutions, for weight and bias: uniform, variance 1 / (3 fan_in).
Init fan_in_uniform(int64_t fan_in) { return Init::uniform(1 / std::sqrt(static_cast<double>(fan_in))); }

Init bias_init(const std::optional<Init>& weight_init, int64_t fan_in) {
  return weight_init ? Init::zeros() : fan_in_uniform(fan_in);
}

device::Split split_of(const comm::Group& group, int64_t dim, std::vector<int64_t> sections) {
  return {.dim = dim, .sections = std::move(sections), .rank = group.rank(), .ranks = group.size()};
}

}  // namespace

/// Returns how ranks share a dimension of the weight, if they do.
std::optional<device::Split> Linear::split(Shared along) const {
  if (context().tensor_group == nullptr || options_.shared != along) return std::nullopt;
  const bool is_out = along == Shared::outputs;
  auto sections =
      is_out && !options_.sections.empty() ? options_.sections : std::vector{is_out ? options_.out : options_.in};
  const int64_t dim = is_out == (options_.order == Order::out_in) ? 0 : 1;
  return split_of(*context().tensor_group, dim, std::move(sections));
}

Linear::Linear(const Context& context, const Options& options) : Module(context), options_(options) {
  const int64_t in = options.in, out = options.out;
  const Init init = options.weight_init.value_or(fan_in_uniform(in));
  const bool is_out_in = options.order == Order::out_in;
  const auto of_outputs = split(Shared::outputs);
  weight_ = register_parameter("weight", {is_out_in ? out : in, is_out_in ? in : out}, init, ParameterRole::weight,
                               ReadAs::compute, of_outputs ? of_outputs : split(Shared::inputs));
  if (!options.bias) return;
  auto of_bias = of_outputs;
  if (of_bias) of_bias->dim = 0;
  bias_ = register_parameter("bias", {out}, bias_init(options.weight_init, in), ParameterRole::bias, ReadAs::compute,
                             of_bias);
}

/// Computes frozen layers with adapters in one function, in training on a GPU; none: they are not all of this kind.
std::vector<at::Tensor> Linear::adapted(const std::vector<const Linear*>& layers, const at::Tensor& x) {
  const auto has_branch = [](const Linear* layer) { return layer->branch_ != nullptr; };
  const auto is_frozen = [](const Linear* layer) {
    const bool is_kept =
        layer->is_packed() || (!layer->weight_.requires_grad() && layer->options_.order == Order::out_in);
    return is_kept && layer->context().tensor_group == nullptr &&
           !(layer->bias_.defined() && layer->bias_.requires_grad());
  };
  // Not by the grad mode: a block that is computed again has another one then, and must give the same results.
  const bool is_trained_on_gpu = x.is_cuda() && layers.front()->is_training();
  if (!is_trained_on_gpu || !std::ranges::any_of(layers, has_branch) || !std::ranges::all_of(layers, is_frozen))
    return {};
  std::vector<ops::AdaptedLinear> all;
  for (const Linear* layer : layers) {
    const auto low_rank = has_branch(layer) ? layer->branch_->low_rank(x) : ops::AdaptedLinear();
    if (!low_rank) return {};
    all.push_back(*low_rank);
    all.back().weight = layer->frozen_matrix();
    all.back().bias = layer->bias_;
  }
  return ops::adapted_linears(layers.front()->context().policy, x, all);
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  if (const auto results = adapted({this}, x); !results.empty()) return results[0];
  const bool adds_up = context().tensor_group != nullptr && options_.shared == Shared::inputs;
  at::Tensor y = product(x, adds_up ? at::Tensor() : bias_);
  if (adds_up) {
    y = ops::split_sum(y, context().tensor_group);
    if (bias_.defined()) y = at::add(y, ops::cast(bias_, y.scalar_type()));
  }
  return with_branch(std::move(y), x);
}

at::Tensor Linear::product(const at::Tensor& x, const at::Tensor& bias) const {
  if (is_packed()) return ops::frozen_linear(context().policy, x, frozen_matrix(), bias);
  return is_in_out() ? ops::linear_in_out(context().policy, x, weight_, bias)
                     : ops::linear(context().policy, x, weight_, bias);
}

at::Tensor Linear::with_branch(at::Tensor y, const at::Tensor& x) const {
  return branch_ != nullptr ? branch_->add_to(y, x) : y;
}

void Linear::pack(std::shared_ptr<const Packing> packing, at::ScalarType stored) {
  GPUTRAIN_ASSERT(!is_packed() && context().tensor_group == nullptr, "a whole dense weight is packed, and once");
  packed_ = std::make_unique<Packed>(std::move(packing),
                                     PackedShape{.rows = options_.out, .columns = options_.in, .stored = stored},
                                     context().device);
  std::vector<std::pair<std::string, at::Tensor>> parts;
  const std::vector<std::string> suffixes = packed_->suffixes();
  for (size_t i = 0; i < suffixes.size(); ++i) {
    const at::Tensor& part = parts.emplace_back("weight" + suffixes[i], packed_->parts()[i]).second;
    if (context().takes_no_memory) device::take_memory(part);
  }
  replace_parameters({"weight"}, parts);
  weight_ = at::Tensor();
}

void Linear::unpack() {
  const at::Tensor dense = packed().matrix().in(packed().shape().stored);
  std::vector<std::string> parts;
  for (const std::string& suffix : packed_->suffixes()) parts.push_back("weight" + suffix);
  weight_ = is_in_out() ? dense.t().contiguous() : dense;
  replace_parameters(parts, {{"weight", weight_}});
  packed_.reset();
}

const Packed& Linear::packed() const {
  GPUTRAIN_ASSERT(is_packed(), "the weight is packed");
  return *packed_;
}

std::vector<int64_t> Linear::stored_sizes() const {
  return is_in_out() ? std::vector{options_.in, options_.out} : std::vector{options_.out, options_.in};
}

ops::FrozenMatrix Linear::frozen_matrix() const {
  return is_packed() ? packed_->matrix() : ops::FrozenMatrix{.parts = {weight_}, .read = {}};
}

at::Tensor Linear::matrix(std::optional<at::ScalarType> type) const {
  const at::NoGradGuard no_grad;
  const at::Tensor stored = frozen_matrix().in(type.value_or(context().policy.master));
  return (is_packed() || options_.order == Order::out_in ? stored : stored.t()).detach();
}

void Linear::merge_branch() {
  GPUTRAIN_ASSERT(branch_ != nullptr && !is_packed(), "there is a branch beside a weight that is not packed");
  const at::NoGradGuard no_grad;
  const at::Tensor matrix = branch_->matrix();
  // In the master type, which a frozen weight may be narrower than.
  const at::Tensor sum =
      at::add(weight_.to(matrix.scalar_type()), options_.order == Order::out_in ? matrix : matrix.t());
  weight_.detach().copy_(sum);
  branch_->clear();
}

std::vector<at::Tensor> forward_each(const std::vector<Linear*>& layers, const at::Tensor& x) {
  std::vector<at::Tensor> weights, results = Linear::adapted({layers.begin(), layers.end()}, x);
  if (!results.empty()) return results;
  for (const Linear* layer : layers) {
    const bool is_plain = !layer->is_packed() && layer->options_.order == Linear::Order::out_in;
    if (is_plain && !layer->bias_.defined()) weights.push_back(layer->weight_);
  }
  if (weights.size() == layers.size()) {
    results = ops::linear_each(layers.front()->context().policy, x, weights);
    for (size_t i = 0; i < layers.size(); ++i) results[i] = layers[i]->with_branch(std::move(results[i]), x);
    return results;
  }
  for (const Linear* layer : layers) results.push_back(layer->forward(x));
  return results;
}

Conv2d::Conv2d(const Context& context, const Options& options) : Module(context), options_(options) {
  GPUTRAIN_ASSERT(options.groups >= 1 && options.in % options.groups == 0 && options.out % options.groups == 0,
                  "a convolution's groups must divide its channels");
  const int64_t in = options.in / options.groups, fan_in = in * options.kernel * options.kernel;
  weight_ =
      register_parameter("weight", {options.out, in, options.kernel, options.kernel},
                         options.weight_init.value_or(fan_in_uniform(fan_in)), ParameterRole::weight, ReadAs::compute);
  if (options.bias) {
    bias_ = register_parameter("bias", {options.out}, bias_init(options.weight_init, fan_in), ParameterRole::bias,
                               ReadAs::compute);
  }
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  return ops::conv2d(context().policy, x, weight_, bias_, options_.stride, options_.padding, options_.dilation,
                     options_.groups);
}

ConvTranspose2d::ConvTranspose2d(const Context& context, const Options& options) : Module(context), options_(options) {
  // torch.nn takes the outputs of a filter for its inputs.
  const Init init = fan_in_uniform(options.out * options.stride * options.stride);
  weight_ = register_parameter("weight", {options.in, options.out, options.stride, options.stride}, init,
                               ParameterRole::weight, ReadAs::compute);
  bias_ = register_parameter("bias", {options.out}, init, ParameterRole::bias, ReadAs::compute);
}

at::Tensor ConvTranspose2d::forward(const at::Tensor& x) const {
  return ops::conv_transpose2d(context().policy, x, weight_, bias_, options_.stride);
}

BatchNorm2d::BatchNorm2d(const Context& context, const Options& options) : Module(context), options_(options) {
  const int64_t channels = options.channels;
  const auto kept = at::TensorOptions().dtype(context.policy.master).device(context.device);
  weight_ = register_parameter("weight", {channels}, options.weight_init, ParameterRole::norm);
  bias_ = register_parameter("bias", {channels}, Init::zeros(), ParameterRole::norm);
  running_mean_ = register_buffer("running_mean", at::empty({channels}, kept), Init::zeros());
  running_var_ = register_buffer("running_var", at::empty({channels}, kept), Init::ones());
  num_batches_tracked_ = register_buffer("num_batches_tracked", at::empty({}, kept.dtype(at::kLong)), Init::zeros());
}

ops::BatchNormOptions BatchNorm2d::begin_batch() {
  ops::BatchNormOptions options{
      .training = is_training(), .momentum = options_.momentum, .eps = options_.eps, .group = context().batch_group};
  if (is_recomputing()) {
    options.momentum = 0;  // this batch is already counted
  } else if (is_training()) {
    num_batches_tracked_.add_(1);
  }
  return options;
}

// Trained values may have 16 bits (`optimizer.master: bf16`).
at::Tensor BatchNorm2d::weight() const { return ops::cast(weight_, context().policy.master); }

at::Tensor BatchNorm2d::bias() const { return ops::cast(bias_, context().policy.master); }

at::Tensor BatchNorm2d::forward(const at::Tensor& x) {
  return ops::batch_norm(x, weight(), bias(), running_mean_, running_var_, begin_batch());
}

at::Tensor BatchNorm2d::forward_relu(const at::Tensor& x, const at::Tensor& residual) {
  return ops::batch_norm_relu(x, weight(), bias(), running_mean_, running_var_, begin_batch(), residual);
}

ops::ConvNormLayer ConvNorm::operands() const {
  return {.weight = conv->weight_,
          .bias = conv->bias_,
          .stride = conv->options_.stride,
          .padding = conv->options_.padding,
          .dilation = conv->options_.dilation,
          .groups = conv->options_.groups,
          .norm_weight = norm->weight(),
          .norm_bias = norm->bias(),
          .running_mean = norm->running_mean_,
          .running_var = norm->running_var_,
          .norm = norm->begin_batch()};
}

at::Tensor ConvNorm::forward(const at::Tensor& x) const {
  return ops::conv_norms(conv->context().policy, x, {operands()}, {}, ops::LastRelu::no);
}

at::Tensor ConvNorm::forward_relu(const std::vector<ConvNorm>& layers, const at::Tensor& x,
                                  const at::Tensor& residual) {
  std::vector<ops::ConvNormLayer> operands;
  for (const ConvNorm& layer : layers) operands.push_back(layer.operands());
  return ops::conv_norms(layers.front().conv->context().policy, x, operands, residual, ops::LastRelu::yes);
}

Norm::Norm(const Context& context, const Options& options) : Module(context), options_(options) {
  weight_ = register_parameter("weight", {options.channels}, options.from_one ? Init::zeros() : Init::ones(),
                               ParameterRole::norm);
  if (options.kind == Kind::layernorm && options.bias) {
    bias_ = register_parameter("bias", {options.channels}, Init::zeros(), ParameterRole::norm);
  }
}

at::Tensor Norm::factor() const {
  const at::Tensor all = ops::cast(weight_, context().policy.master),
                   weight = options_.norms_own_part ? ops::split_input(all, context().tensor_group) : all;
  return options_.from_one ? at::add(weight, 1) : weight;
}

at::Tensor Norm::bias() const { return ops::cast(bias_, context().policy.master); }

at::Tensor Norm::forward(const at::Tensor& x) const {
  const auto norm = [this](const at::Tensor& in, const at::Tensor&) {
    return options_.kind == Kind::layernorm ? ops::layer_norm(in, factor(), bias(), options_.eps)
                                            : ops::rms_norm(in, factor(), options_.eps);
  };
  return recomputed_value(context().recompute, norm, x);
}

ops::NormedSum Norm::forward_sum(const at::Tensor& x, const at::Tensor& residual, double dropout) const {
  if (!x.defined()) return {.sum = residual, .normed = forward(residual)};
  if (context().recompute == Recompute::selective) {
    const at::Tensor sum = at::add(residual, dropout > 0 ? ops::dropout(x, dropout) : x);
    return {.sum = sum, .normed = forward(sum)};
  }
  return options_.kind == Kind::layernorm ? ops::layer_norm_of_sum(x, residual, factor(), bias(), options_.eps, dropout)
                                          : ops::rms_norm_of_sum(x, residual, factor(), options_.eps, dropout);
}

Embedding::Embedding(const Context& context, const Options& options) : Module(context) {
  std::optional<device::Split> split;
  if (options.shares_rows && context.tensor_group != nullptr) {
    group_ = context.tensor_group;
    split = split_of(*group_, 0, {options.rows});
    first_row_ = split->ranges().front().begin;
  }
  weight_ = register_parameter("weight", {options.rows, options.channels}, Init::normal(options.init_std),
                               ParameterRole::embedding, ReadAs::compute, split);
}

// A frozen table may be kept in 16 bits.
at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  if (group_ == nullptr) return ops::cast(ops::embedding(tokens, weight_), context().policy.master);
  const at::Tensor places = at::sub(tokens, first_row_);
  const at::Tensor is_elsewhere = places.lt(0).logical_or(places.ge(weight_.size(0)));
  const at::Tensor rows =
      ops::cast(ops::embedding(places.masked_fill(is_elsewhere, 0), weight_), context().policy.master);
  return ops::split_sum(rows.masked_fill(is_elsewhere.unsqueeze(-1), 0), group_);
}

at::Tensor Embedding::first_rows(int64_t count) const {
  const bool is_all = count == weight_.size(0) && !ops::is_recorded();
  return ops::cast(is_all ? weight_ : weight_.narrow(0, 0, count), context().policy.master);
}

at::Tensor Dropout::forward(const at::Tensor& x) const {
  const double probability = active_probability();
  return probability > 0 ? ops::dropout(x, probability) : x;
}

at::Tensor DropPath::forward(const at::Tensor& added) const {
  const double probability = active_probability();
  if (probability == 0) return added;
  std::vector<int64_t> per_sample(static_cast<size_t>(added.dim()), 1);
  per_sample[0] = added.size(0);
  return at::mul(added, ops::dropout(at::ones(per_sample, added.options()), probability));
}

SqueezeExcitation::SqueezeExcitation(const Context& context, const Options& options)
    : Module(context), options_(options) {
  const auto layer = [](int64_t in, int64_t out) {
    const double fan_out = static_cast<double>(out);
    return Conv2d::Options{.in = in, .out = out, .kernel = 1, .weight_init = Init::normal(std::sqrt(2 / fan_out))};
  };
  squeeze_ = add_child<Conv2d>("fc1", context, layer(options.channels, options.squeezed));
  excite_ = add_child<Conv2d>("fc2", context, layer(options.squeezed, options.channels));
}

at::Tensor SqueezeExcitation::forward(const at::Tensor& x) const {
  const at::Tensor means = ops::global_average_pool(x).unsqueeze(-1).unsqueeze(-1);
  const at::Tensor told = excite_->forward(ops::activate(squeeze_->forward(means), options_.activation));
  return at::mul(x, options_.gate == Gate::sigmoid ? at::sigmoid(told) : at::hardsigmoid(told));
}

}  // namespace gputrain::nn
