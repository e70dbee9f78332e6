#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/transformer.hpp"
#include "gputrain/ops/context_attention.hpp"

namespace gputrain::nn {
namespace {

struct AttentionLayout {
  std::vector<const char*> inputs;  // one layer for queries, keys and values, or three
  const char* output;
  Linear::Order order = Linear::Order::out_in;
};

AttentionLayout layout_of(Naming naming) {
  switch (naming) {
    case Naming::gpt2:
      return {.inputs = {"c_attn"}, .output = "c_proj", .order = Linear::Order::in_out};
    case Naming::phi3:
      return {.inputs = {"qkv_proj"}, .output = "o_proj"};
    case Naming::gpt_neox:
      return {.inputs = {"query_key_value"}, .output = "dense"};
    case Naming::bert:
      return {.inputs = {"self.query", "self.key", "self.value"}, .output = "output.dense"};
    case Naming::distilbert:
      return {.inputs = {"q_lin", "k_lin", "v_lin"}, .output = "out_lin"};
    case Naming::modernbert:
      return {.inputs = {"Wqkv"}, .output = "Wo"};
    case Naming::llama:
      break;
  }
  return {.inputs = {"q_proj", "k_proj", "v_proj"}, .output = "o_proj"};
}

/// Packed [batch, time, heads * 3 * channels] as views of queries, keys and values.
ops::Heads unpacked_by_head(const at::Tensor& packed, int64_t heads) {
  const auto parts = packed.view({packed.size(0), packed.size(1), heads, -1}).chunk(3, -1);
  return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
}

}  // namespace

SelfAttention::SelfAttention(const Context& context, const Options& options)
    : Module(context),
      options_(options),
      head_channels_(options.head_channels > 0 ? options.head_channels : options.channels / options.heads) {
  GPUTRAIN_ASSERT(options.head_channels > 0 || options.channels % options.heads == 0, "heads must divide channels");
  GPUTRAIN_ASSERT(options.heads % options.key_heads == 0, "key heads must divide heads");
  GPUTRAIN_ASSERT(options.naming != Naming::gpt_neox || options.heads == options.key_heads,
                  "GPT-NeoX has a key for each query");
  GPUTRAIN_ASSERT(!options.norms_heads || options.naming == Naming::llama,
                  "norms of heads have names in Llama's layout");
  const int64_t channels = options.heads * head_channels_, key_channels = options.key_heads * head_channels_;
  const AttentionLayout layout = layout_of(options.naming);
  const bool is_fused = layout.inputs.size() == 1;
  for (const char* name : layout.inputs) {
    const int64_t out = is_fused ? channels + 2 * key_channels : inputs_.empty() ? channels : key_channels;
    inputs_.push_back(add_child<Linear>(name, context,
                                        Linear::Options{.in = options.channels,
                                                        .out = out,
                                                        .bias = options.input_bias,
                                                        .order = layout.order,
                                                        .weight_init = options.weight_init}));
  }
  output_ = add_child<Linear>(layout.output, context,
                              Linear::Options{.in = channels,
                                              .out = options.channels,
                                              .bias = options.bias,
                                              .order = layout.order,
                                              .weight_init = options.output_init});
  if (!options.norms_heads) return;
  const auto add_norm = [&](const char* name, int64_t of_all_heads) {
    return add_child<Norm>(name, context,
                           Norm::Options{.kind = Norm::Kind::rmsnorm,
                                         .channels = options.norms_across ? of_all_heads : head_channels_,
                                         .eps = options.norm_eps,
                                         .from_one = options.norms_from_one});
  };
  query_norm_ = add_norm("q_norm", channels);
  key_norm_ = add_norm("k_norm", key_channels);
}

ops::Heads SelfAttention::project(const at::Tensor& x) const {
  if (is_by_head()) return unpacked_by_head(inputs_[0]->forward(x), options_.heads);
  if (inputs_.size() == 1) return ops::unpacked(inputs_[0]->forward(x), options_.heads, options_.key_heads);
  const std::vector<at::Tensor> qkv = forward_each(inputs_, x);
  const auto heads = [&](const at::Tensor& one, const Norm* norm) {
    const bool is_across = norm != nullptr && options_.norms_across;
    const at::Tensor apart = (is_across ? norm->forward(one) : one).view({x.size(0), x.size(1), -1, head_channels_});
    return (norm == nullptr || is_across ? apart : norm->forward(apart)).transpose(1, 2);
  };
  return {heads(qkv[0], query_norm_), heads(qkv[1], key_norm_), heads(qkv[2], nullptr)};
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const Sequence& sequence) const {
  const ops::AttentionOptions options{.causal = options_.causal,
                                      .dropout = is_training() ? options_.dropout : 0,
                                      .scale = options_.scale,
                                      .window = options_.window,
                                      .positions = sequence.positions,
                                      .lengths = sequence.lengths};
  if (inputs_.size() == 1 && !is_by_head() && !sequence.rotary && sequence.earlier == nullptr &&
      sequence.context == nullptr) {
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
  const at::Tensor y = sequence.context != nullptr ? ops::context_attention(heads, options, *sequence.context)
                                                   : ops::attention(heads.q, heads.k, heads.v, options);
  return output_->forward(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

}  // namespace gputrain::nn
