#include <cmath>

#include "encoder.hpp"
#include "encoder_names.hpp"

namespace gputrain::models {
namespace {

nn::SelfAttention::Options encoder_attention_options(const EncoderSizes& sizes, int64_t window,
                                                     const nn::Init& output_init) {
  return {.naming = sizes.variant->in_blocks,
          .channels = sizes.channels,
          .heads = sizes.heads,
          .key_heads = sizes.heads,
          .causal = false,
          .bias = !sizes.has_norms_before,
          .input_bias = !sizes.has_norms_before,
          .dropout = sizes.attention_dropout,
          .window = window,
          .weight_init = nn::Init::normal(kEncoderInitStd),
          .output_init = output_init};
}

nn::FeedForward::Options encoder_feed_forward_options(const EncoderSizes& sizes, const nn::Init& output_init) {
  return {.naming = sizes.variant->in_blocks,
          .channels = sizes.channels,
          .inner = sizes.inner,
          .gated = sizes.has_norms_before,
          .activation = sizes.activation,
          .bias = !sizes.has_norms_before,
          .dropout = sizes.has_norms_before ? sizes.dropout : 0,
          .weight_init = nn::Init::normal(kEncoderInitStd),
          .output_init = output_init};
}

/// Returns the dropout on what attention adds: DistilBERT has none there, ModernBERT that of the attention weights.
double dropout_after_attention(const EncoderSizes& sizes) {
  if (!sizes.variant->drops_attended) return 0;
  return sizes.has_norms_before ? sizes.attention_dropout : sizes.dropout;
}

}  // namespace

EncoderBlock::EncoderBlock(const nn::Context& context, const EncoderSizes& sizes, size_t layer)
    : Module(context), rotary_index_(sizes.windows[layer] > 0 ? 1 : 0), has_norms_before_(sizes.has_norms_before) {
  const EncoderVariant& names = *sizes.variant;
  const double depth = has_norms_before_ ? std::sqrt(2.0 * static_cast<double>(sizes.layers)) : 1;
  const auto output_init = nn::Init::normal(kEncoderInitStd / depth);
  const auto add_norm = [&](const char* name) {
    return add_child<nn::Norm>(
        name, context,
        nn::Norm::Options{.channels = sizes.channels, .bias = !has_norms_before_, .eps = sizes.norm_eps});
  };
  if (!has_norms_before_ || layer > 0) attention_norm_ = add_norm(names.attention_norm);
  attention_ = add_child<nn::SelfAttention>(names.attention, context,
                                            encoder_attention_options(sizes, sizes.windows[layer], output_init));
  feed_forward_norm_ = add_norm(names.feed_forward_norm);
  feed_forward_ =
      add_child<nn::FeedForward>(names.feed_forward, context, encoder_feed_forward_options(sizes, output_init));
  attention_dropout_ = add_child<nn::Dropout>("attention_dropout", context, dropout_after_attention(sizes));
  feed_forward_dropout_ =
      add_child<nn::Dropout>("feed_forward_dropout", context, has_norms_before_ ? 0 : sizes.dropout);
}

nn::ResidualStream EncoderBlock::forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const {
  const double dropped = attention_dropout_->active_probability();
  if (has_norms_before_) {
    const auto [x, attention_in] =
        attention_norm_ != nullptr ? attention_norm_->forward_sum(in.added, in.x) : ops::NormedSum{in.x, in.x};
    const auto [sum, normed] = feed_forward_norm_->forward_sum(attention_->forward(attention_in, sequence), x, dropped);
    return {sum, feed_forward_->forward(normed)};
  }
  const at::Tensor attended = attention_norm_->forward_sum(attention_->forward(in.x, sequence), in.x, dropped).normed;
  return {feed_forward_norm_
              ->forward_sum(feed_forward_->forward(attended), attended, feed_forward_dropout_->active_probability())
              .normed};
}

}  // namespace gputrain::models
