// Encoders of texts, in which each token attends to those before and after it: BERT (Devlin et al., arXiv:1810.04805),
// RoBERTa, DistilBERT and ModernBERT (Warner et al., arXiv:2412.13663).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "encoder_head.hpp"
#include "encoder_spec.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::models {

/// Block norm(x + attention(x)), then norm(x + feed_forward(x)); with norms before, x + attention(norm(x)), and so on.
class EncoderBlock final : public nn::Module {
 public:
  EncoderBlock(const nn::Context& context, const EncoderSizes& sizes, size_t layer);
  nn::ResidualStream forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const;
  /// Returns the index of the block's table among the model's rotary tables.
  size_t rotary_index() const noexcept { return rotary_index_; }

 private:
  size_t rotary_index_;
  bool has_norms_before_;
  nn::Norm* attention_norm_ = nullptr;  // null in ModernBERT's first layer, whose input is normed already
  nn::Norm* feed_forward_norm_;
  nn::SelfAttention* attention_;
  nn::FeedForward* feed_forward_;
  nn::Dropout *attention_dropout_, *feed_forward_dropout_;  // on what they add
};

/// Encoder of kTokens, ragged if texts differ in length, and of kTokenTypes and kPositions if the batch has them.
class Encoder final : public Model {
 public:
  Encoder(const EncoderSpec& spec, const nn::Context& context, const DataFacts& facts);
  static InputSpec reads(const EncoderSpec& spec) {
    return {.field = kTokens, .longest = spec.block_size.value_or(0), .target = target_of(spec)};
  }

  at::Tensor forward(const at::Tensor& inputs) override;
  LastLayer last_layer(const Batch& batch) override;
  std::vector<Unit> units() override;
  std::vector<nn::Module*> head_parts() override { return head_->parts(); }
  static Abilities abilities() {
    return {.announces_units = true, .recomputes_blocks = true, .recomputes_selectively = true};
  }
  double flops_per_sample() const override;

  const EncoderSizes& sizes() const noexcept { return sizes_; }

 private:
  struct Texts {
    at::Tensor tokens, types = {}, positions = {}, lengths = {};  // all but tokens may be undefined
    ops::Texts apart = {};                                        // texts that positions or lengths separate; on a GPU
  };
  static Texts texts_of(const Batch& batch);
  std::vector<nn::Module*> head_unit() const;
  ops::Head head() const;
  /// Returns whether texts are computed in one row, without padding: not on a GPU, for which the host would wait.
  static bool has_padding_on_cpu(const Texts& texts) {
    return texts.lengths.defined() && texts.lengths.is_cpu() && !texts.positions.defined();
  }
  at::Tensor features(const Texts& texts) const;
  at::Tensor hidden(const Texts& texts) const;  // after the last block and its norm
  at::Tensor embedded(const Texts& texts) const;

  EncoderSizes sizes_;
  int64_t sample_tokens_;
  nn::Embedding* tokens_;
  nn::Embedding *positions_ = nullptr, *types_ = nullptr;
  std::vector<ops::RotaryTable> rotary_;  // none, or one for all layers, or a second one for layers with a window
  nn::Norm *embedding_norm_, *final_norm_ = nullptr;
  nn::Dropout* dropout_;
  std::vector<EncoderBlock*> blocks_;
  EncoderHead* head_;
};

}  // namespace gputrain::models
