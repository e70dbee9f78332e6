#include <vector>

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

ops::Heads SelfAttention::project(const at::Tensor& x) const {
  if (inputs_.size() == 1) return ops::unpacked(inputs_[0]->forward(x), options_.heads, options_.key_heads);
  const std::vector<at::Tensor> qkv = forward_each(inputs_, x);
  const auto heads = [&](const at::Tensor& one) {
    return one.view({x.size(0), x.size(1), -1, head_channels_}).transpose(1, 2);
  };
  return {heads(qkv[0]), heads(qkv[1]), heads(qkv[2])};
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const ops::RotaryTable* rotary) const {
  const ops::AttentionOptions options{.causal = true, .dropout = is_training() ? options_.dropout : 0};
  if (inputs_.size() == 1 && rotary == nullptr) {
    return output_->forward(ops::packed_attention(inputs_[0]->forward(x), options_.heads, options_.key_heads, options));
  }
  ops::Heads heads = project(x);
  if (rotary != nullptr) {
    heads.q = ops::rotate(heads.q, *rotary);
    heads.k = ops::rotate(heads.k, *rotary);
  }
  const at::Tensor y = ops::attention(heads.q, heads.k, heads.v, options);
  return output_->forward(y.transpose(1, 2).reshape(x.sizes()));
}

}  // namespace gputrain::nn
