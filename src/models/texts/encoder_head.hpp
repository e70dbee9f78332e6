// Head of an encoder: turns hidden states into features, and features into logits.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder_spec.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::models {

/// Pools the tokens of each text to one vector: hidden [batch, time, channels], lengths int64 [batch] or undefined ->
/// [batch, channels]. The vector of a text without tokens means nothing, but is finite.
at::Tensor pooled(const at::Tensor& hidden, const at::Tensor& lengths, Pooling pooling);

/// Bias of the vocabulary's logits; their weight is that of the token embedding.
class VocabularyBias final : public nn::Module {
 public:
  VocabularyBias(const nn::Context& context, int64_t vocabulary);
  const at::Tensor& bias() const noexcept { return bias_; }

 private:
  at::Tensor bias_;
};

/// Head: pools if texts have the classes, applies a dense layer, an activation and a norm as far as the variant has
/// them, then the layer of the classes. An embedder only pools, and divides by the length if it normalises.
class EncoderHead final : public nn::Module {
 public:
  EncoderHead(const nn::Context& context, const EncoderSizes& sizes);
  /// Maps hidden [batch, time, channels] to [batch, time or none, channels].
  at::Tensor features(const at::Tensor& hidden, const at::Tensor& lengths) const;
  /// Returns the layer of the classes. `embedding`: weight of the tokens. An embedder's features are its logits.
  ops::Head last_layer(const at::Tensor& embedding) const;
  /// Lists the modules with parameters, that of the classes last.
  std::vector<nn::Module*> parts() const;
  bool reads_embedding() const noexcept { return vocabulary_ != nullptr; }
  bool is_pooled() const noexcept { return kind_ == HeadKind::classifier || kind_ == HeadKind::embedder; }

 private:
  HeadKind kind_;
  Pooling pooling_;
  bool normalizes_;
  int64_t classes_;
  ops::Activation activation_;
  nn::Linear *dense_ = nullptr, *classifier_ = nullptr;
  nn::Norm* norm_ = nullptr;
  VocabularyBias* vocabulary_ = nullptr;
  nn::Dropout *pooled_dropout_, *dropout_;  // dropouts before the dense layer and before the classes
};

}  // namespace gputrain::models
