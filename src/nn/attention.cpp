#include <ATen/core/Tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::nn {

SelfAttention::SelfAttention(const Context& context, const Options& options)
    : Module(context), options_(options), head_channels_(options.channels / options.heads) {
  GPUTRAIN_ASSERT(options.channels % options.heads == 0 && options.heads % options.key_heads == 0,
                  "heads must divide channels, and key heads must divide heads");
  const int64_t channels = options.channels, key_channels = options.key_heads * head_channels_;
  const auto add = [&](const char* name, int64_t out, const Init& init) {
    const auto order = options.naming == Naming::gpt2 ? Linear::Order::in_out : Linear::Order::out_in;
    return add_child<Linear>(
        name, context,
        Linear::Options{.in = channels, .out = out, .bias = options.bias, .order = order, .weight_init = init});
  };
  if (options.naming == Naming::gpt2) {
    inputs_ = {add("c_attn", channels + 2 * key_channels, options.weight_init)};
    output_ = add("c_proj", channels, options.output_init);
  } else {
    inputs_ = {add("q_proj", channels, options.weight_init), add("k_proj", key_channels, options.weight_init),
               add("v_proj", key_channels, options.weight_init)};
    output_ = add("o_proj", channels, options.output_init);
  }
}

SelfAttention::Heads SelfAttention::project(const at::Tensor& x) const {
  const int64_t batch = x.size(0), time = x.size(1);
  const auto split_heads = [&](const at::Tensor& y) { return y.view({batch, time, -1, head_channels_}); };
  if (inputs_.size() == 3) {
    const auto heads = [&](const Linear* layer) { return split_heads(layer->forward(x)).transpose(1, 2); };
    return {heads(inputs_[0]), heads(inputs_[1]), heads(inputs_[2])};
  }
  // Split before the transposition: the backward pass then joins the three gradients in the order the product needs.
  const int64_t heads = options_.heads, key_heads = options_.key_heads;
  const auto parts = split_heads(inputs_[0]->forward(x)).split_with_sizes({heads, key_heads, key_heads}, 2);
  return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const ops::RotaryTable* rotary) const {
  Heads heads = project(x);
  if (rotary != nullptr) {
    heads.q = ops::rotate(heads.q, *rotary);
    heads.k = ops::rotate(heads.k, *rotary);
  }
  const ops::AttentionOptions options{.causal = true, .dropout = is_training() ? options_.dropout : 0};
  const at::Tensor y = ops::attention(heads.q, heads.k, heads.v, options);
  return output_->forward(y.transpose(1, 2).reshape(x.sizes()));
}

}  // namespace gputrain::nn
