#include <cmath>

#include <ATen/ops/add.h>

#include "gpt_names.hpp"

namespace gputrain::models {

nn::Norm::Options norm_options(const GptSpec& spec, const GptSizes& sizes) {
  return {.kind = sizes.rmsnorm ? nn::Norm::Kind::rmsnorm : nn::Norm::Kind::layernorm,
          .channels = sizes.channels,
          .bias = sizes.bias,
          .eps = spec.norm_eps,
          .from_one = sizes.norms_from_one};
}

namespace {

nn::SelfAttention::Options attention_options(const GptSpec& spec, const GptSizes& sizes, int64_t window,
                                             const nn::Init& output_init) {
  return {.naming = sizes.naming,
          .channels = sizes.channels,
          .heads = sizes.heads,
          .key_heads = sizes.key_heads,
          .head_channels = sizes.head_channels,
          .bias = sizes.bias,
          .input_bias = sizes.qkv_bias,
          .norms_heads = spec.qk_norm,
          .norms_across = spec.qk_norm_across_heads,
          .norms_from_one = sizes.norms_from_one,
          .norm_eps = spec.norm_eps,
          .dropout = spec.dropout,
          .window = window,
          .scale = sizes.attention_scale,
          .weight_init = nn::Init::normal(kGptInitStd),
          .output_init = output_init};
}

nn::FeedForward::Options feed_forward_options(const GptSizes& sizes, int64_t inner, const nn::Init& output_init) {
  return {.naming = sizes.naming,
          .channels = sizes.channels,
          .inner = inner,
          .gated = sizes.gated,
          .activation = sizes.activation,
          .bias = sizes.bias,
          .weight_init = nn::Init::normal(kGptInitStd),
          .output_init = output_init};
}

nn::Experts::Options expert_options(const GptSpec& spec, const GptSizes& sizes, const nn::Init& output_init) {
  return {.expert = feed_forward_options(sizes, sizes.expert_inner, output_init),
          .count = spec.n_expert,
          .per_token = spec.experts_per_token,
          .scales_to_one = spec.norm_expert_weights};
}

at::Tensor normed(const nn::Norm* norm, const at::Tensor& x) { return norm != nullptr ? norm->forward(x) : x; }

}  // namespace

GptBlock::GptBlock(const nn::Context& context, const GptSpec& spec, const GptSizes& sizes, int64_t layer)
    : Module(context) {
  const GptNames& names = names_of(sizes.naming);
  const BlockNormNames norms = names_of_norms(sizes.naming, sizes.norm_places);
  const int64_t window = sizes.windows.at(static_cast<size_t>(layer));
  // Each block adds to the residual stream twice; this keeps the sum's variance (Radford et al., GPT-2, section 2.3).
  const auto output_init = nn::Init::normal(kGptInitStd / std::sqrt(2.0 * static_cast<double>(sizes.layers)));
  const auto add_norm = [&](const char* name) {
    return name != nullptr ? add_child<nn::Norm>(name, context, norm_options(spec, sizes)) : nullptr;
  };
  is_parallel_ = spec.parallel_residual;
  rotary_index_ = window > 0 && spec.rope_local_theta ? 1 : 0;
  before_attention_ = add_norm(norms.before_attention);
  attention_ =
      add_child<nn::SelfAttention>(names.attention, context, attention_options(spec, sizes, window, output_init));
  after_attention_ = add_norm(norms.after_attention);
  before_feed_forward_ = add_norm(norms.before_feed_forward);
  if (sizes.sparse.at(static_cast<size_t>(layer))) {
    experts_ = add_child<nn::Experts>(names.feed_forward, context, expert_options(spec, sizes, output_init));
  } else {
    feed_forward_ =
        add_child<nn::FeedForward>(names.feed_forward, context, feed_forward_options(sizes, sizes.inner, output_init));
  }
  after_feed_forward_ = add_norm(norms.after_feed_forward);
  dropout_ = add_child<nn::Dropout>("dropout", context, spec.dropout);
}

ops::NormedSum GptBlock::read(const nn::Norm* norm, const nn::ResidualStream& stream) const {
  if (norm != nullptr) return norm->forward_sum(stream.added, stream.x, dropout_->active_probability());
  const at::Tensor sum = stream.added.defined() ? at::add(stream.x, dropout_->forward(stream.added)) : stream.x;
  return {.sum = sum, .normed = sum};
}

nn::Experts::Mixed GptBlock::fed_forward(const at::Tensor& x) const {
  if (experts_ != nullptr) return experts_->forward(x);
  return {.y = feed_forward_->forward(x), .logits = {}};
}

nn::ResidualStream GptBlock::forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const {
  const auto [x, attention_in] = read(before_attention_, in);
  const at::Tensor attended = normed(after_attention_, attention_->forward(attention_in, sequence));
  if (is_parallel_) {
    const auto [added, routes] = fed_forward(normed(before_feed_forward_, x));
    return {at::add(x, dropout_->forward(attended)), normed(after_feed_forward_, added), routes};
  }
  const auto [y, feed_forward_in] = read(before_feed_forward_, {x, attended});
  const auto [added, routes] = fed_forward(feed_forward_in);
  return {y, normed(after_feed_forward_, added), routes};
}

}  // namespace gputrain::models
