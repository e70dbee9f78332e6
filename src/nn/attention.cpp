#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/nn/transformer.hpp"
#include "gputrain/ops/context_attention.hpp"
#include "gputrain/ops/split_layers.hpp"

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
    case Naming::timm:
      return {.inputs = {"qkv"}, .output = "proj"};
    case Naming::convnext:
    case Naming::llama:
      break;
  }
  return {.inputs = {"q_proj", "k_proj", "v_proj"}, .output = "o_proj"};
}

/// Returns packed [batch, time, heads * 3 * channels] as views of queries, keys and values.
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
  GPUTRAIN_ASSERT(options.naming != Naming::convnext, "ConvNeXt has no attention");
  const AttentionLayout layout = layout_of(options.naming);
  const bool is_fused = layout.inputs.size() == 1;
  const int64_t ranks = context.tensor_group != nullptr ? context.tensor_group->size() : 1;
  shares_keys_ = options.key_heads % ranks == 0;
  GPUTRAIN_ASSERT(options.heads % ranks == 0 && (shares_keys_ || !is_fused), "ranks have equal parts of the heads");
  heads_ = options.heads / ranks;
  key_heads_ = shares_keys_ ? options.key_heads / ranks : options.key_heads;
  for (const char* name : layout.inputs) {
    const int64_t out = is_fused ? channels + 2 * key_channels : inputs_.empty() ? channels : key_channels;
    const bool is_shared = shares_keys_ || inputs_.empty();
    const bool is_one_after_the_other = is_fused && !is_by_head();
    inputs_.push_back(add_child<Linear>(
        name, context,
        Linear::Options{.in = options.channels,
                        .out = out,
                        .bias = options.input_bias,
                        .order = layout.order,
                        .weight_init = options.weight_init,
                        .shared = is_shared ? Linear::Shared::outputs : Linear::Shared::no,
                        .sections = is_one_after_the_other ? std::vector{channels, key_channels, key_channels}
                                                           : std::vector<int64_t>()}));
  }
  output_ = add_child<Linear>(layout.output, context,
                              Linear::Options{.in = channels,
                                              .out = options.channels,
                                              .bias = options.bias,
                                              .order = layout.order,
                                              .weight_init = options.output_init,
                                              .shared = Linear::Shared::inputs});
  if (!options.norms_heads) return;
  GPUTRAIN_ASSERT(ranks == 1 || !options.norms_across, "no rank has all heads to norm them");
  const auto add_norm = [&](const char* name, int64_t of_all_heads, bool is_shared) {
    return add_child<Norm>(name, context,
                           Norm::Options{.kind = Norm::Kind::rmsnorm,
                                         .channels = options.norms_across ? of_all_heads : head_channels_,
                                         .eps = options.norm_eps,
                                         .from_one = options.norms_from_one,
                                         .norms_own_part = is_shared});
  };
  query_norm_ = add_norm("q_norm", channels, true);
  key_norm_ = add_norm("k_norm", key_channels, shares_keys_);
}

/// Returns the key heads that this rank's heads attend to, one for each of them: [batch, all key heads, ...] -> [batch,
/// heads of the rank, ...].
at::Tensor SelfAttention::of_own_heads(const at::Tensor& keys) const {
  const int64_t in_group = options_.heads / options_.key_heads, first = context().tensor_group->rank() * heads_;
  const auto whole = at::TensorOptions().dtype(at::kLong).device(keys.device());
  const at::Tensor heads = at::arange(first, first + heads_, whole).div(in_group, "floor");
  return ops::split_input(keys, context().tensor_group).index_select(1, heads);
}

ops::Heads SelfAttention::project(const at::Tensor& x) const {
  const at::Tensor read = ops::split_input(x, context().tensor_group);
  if (is_by_head()) return unpacked_by_head(inputs_[0]->forward(read), heads_);
  if (inputs_.size() == 1) return ops::unpacked(inputs_[0]->forward(read), heads_, key_heads_);
  const std::vector<at::Tensor> qkv =
      shares_keys_ ? forward_each(inputs_, read)
                   : std::vector{inputs_[0]->forward(read), inputs_[1]->forward(x), inputs_[2]->forward(x)};
  const auto heads = [&](const at::Tensor& one, const Norm* norm) {
    const bool is_across = norm != nullptr && options_.norms_across;
    const at::Tensor apart = (is_across ? norm->forward(one) : one).view({x.size(0), x.size(1), -1, head_channels_});
    return (norm == nullptr || is_across ? apart : norm->forward(apart)).transpose(1, 2);
  };
  ops::Heads found{heads(qkv[0], query_norm_), heads(qkv[1], key_norm_), heads(qkv[2], nullptr)};
  if (shares_keys_) return found;
  return {found.q, of_own_heads(found.k), of_own_heads(found.v)};
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const Sequence& sequence) const {
  const ops::AttentionOptions options{.causal = options_.causal,
                                      .dropout = is_training() ? options_.dropout : 0,
                                      .scale = options_.scale,
                                      .window = options_.window,
                                      .positions = sequence.positions,
                                      .lengths = sequence.lengths,
                                      .room = sequence.room,
                                      .texts = sequence.texts};
  if (inputs_.size() == 1 && !is_by_head() && !sequence.rotary && sequence.earlier == nullptr &&
      sequence.context == nullptr) {
    const at::Tensor packed = inputs_[0]->forward(ops::split_input(x, context().tensor_group));
    return output_->forward(ops::packed_attention(packed, heads_, key_heads_, options));
  }
  ops::Heads heads = project(x);
  if (sequence.rotary) {
    heads.q = ops::rotate(heads.q, *sequence.rotary);
    heads.k = ops::rotate(heads.k, *sequence.rotary);
  }
  if (sequence.earlier != nullptr) {
    if (sequence.room.place.defined()) {
      sequence.earlier->write(heads.k, heads.v, sequence.room.place);
    } else {
      sequence.earlier->append(heads.k, heads.v);
    }
    heads.k = sequence.earlier->keys();
    heads.v = sequence.earlier->values();
  }
  const at::Tensor y = sequence.context != nullptr ? ops::context_attention(heads, options, *sequence.context)
                                                   : ops::attention(heads.q, heads.k, heads.v, options);
  return output_->forward(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

at::Tensor ResidualStream::sum() const { return added.defined() ? at::add(x, added) : x; }

}  // namespace gputrain::nn
