#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::nn {

SelfAttention::SelfAttention(const Context& context, const Options& options)
    : Module(context),
      options_(options),
      head_channels_(options.head_channels > 0 ? options.head_channels : options.channels / options.heads) {
  GPUTRAIN_ASSERT(options.head_channels > 0 || options.channels % options.heads == 0, "heads must divide channels");
  GPUTRAIN_ASSERT(options.heads % options.key_heads == 0, "key heads must divide heads");
  GPUTRAIN_ASSERT(!options.norms_heads || options.naming == Naming::llama,
                  "norms of heads have names in Llama's layout");
  const int64_t channels = options.heads * head_channels_, key_channels = options.key_heads * head_channels_;
  const auto order = options.naming == Naming::gpt2 ? Linear::Order::in_out : Linear::Order::out_in;
  const auto add_input = [&](const char* name, int64_t out) {
    return add_child<Linear>(name, context,
                             Linear::Options{.in = options.channels,
                                             .out = out,
                                             .bias = options.input_bias,
                                             .order = order,
                                             .weight_init = options.weight_init});
  };
  if (options.naming == Naming::gpt2) {
    inputs_ = {add_input("c_attn", channels + 2 * key_channels)};
  } else {
    inputs_ = {add_input("q_proj", channels), add_input("k_proj", key_channels), add_input("v_proj", key_channels)};
  }
  output_ = add_child<Linear>(options.naming == Naming::gpt2 ? "c_proj" : "o_proj", context,
                              Linear::Options{.in = channels,
                                              .out = options.channels,
                                              .bias = options.bias,
                                              .order = order,
                                              .weight_init = options.output_init});
  if (!options.norms_heads) return;
  const Norm::Options norm{.kind = Norm::Kind::rmsnorm,
                           .channels = head_channels_,
                           .eps = options.norm_eps,
                           .from_one = options.norms_from_one};
  query_norm_ = add_child<Norm>("q_norm", context, norm);
  key_norm_ = add_child<Norm>("k_norm", context, norm);
}

ops::Heads SelfAttention::project(const at::Tensor& x) const {
  if (inputs_.size() == 1) return ops::unpacked(inputs_[0]->forward(x), options_.heads, options_.key_heads);
  const std::vector<at::Tensor> qkv = forward_each(inputs_, x);
  const auto heads = [&](const at::Tensor& one, const Norm* norm) {
    const at::Tensor apart = one.view({x.size(0), x.size(1), -1, head_channels_});
    return (norm != nullptr ? norm->forward(apart) : apart).transpose(1, 2);
  };
  return {heads(qkv[0], query_norm_), heads(qkv[1], key_norm_), heads(qkv[2], nullptr)};
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const Sequence& sequence) const {
  const ops::AttentionOptions options{.causal = true,
                                      .dropout = is_training() ? options_.dropout : 0,
                                      .scale = options_.scale,
                                      .window = options_.window,
                                      .positions = sequence.positions};
  if (inputs_.size() == 1 && !sequence.rotary && sequence.earlier == nullptr) {
    return output_->forward(ops::packed_attention(inputs_[0]->forward(x), options_.heads, options_.key_heads, options));
  }
  ops::Heads heads = project(x);
  if (sequence.rotary) {
    heads.q = ops::rotate(heads.q, *sequence.rotary);
    heads.k = ops::rotate(heads.k, *sequence.rotary);
  }
  if (sequence.earlier != nullptr) {
    sequence.earlier->append(heads.k, heads.v);
    heads.k = sequence.earlier->keys();
    heads.v = sequence.earlier->values();
  }
  const at::Tensor y = ops::attention(heads.q, heads.k, heads.v, options);
  return output_->forward(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

}  // namespace gputrain::nn
