// What turns an encoder's hidden states into features, and features into logits.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder_spec.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::models {

/// One vector of the tokens of each text: hidden [batch, time, channels], lengths int64 [batch] or undefined -> [batch,
/// channels]. That of a text without tokens means nothing, but is finite.
at::Tensor pooled(const at::Tensor& hidden, const at::Tensor& lengths, Pooling pooling);

/// The bias of the vocabulary's logits; their weight is that of the token embedding.
class VocabularyBias final : public nn::Module {
 public:
  VocabularyBias(const nn::Context& context, int64_t vocabulary);
  const at::Tensor& bias() const noexcept { return bias_; }

 private:
  at::Tensor bias_;
};

/// Pools where texts have the classes; then a dense layer, an activation and a norm, as far as the variant has them;
/// then the classes. An embedder only pools, and divides by the length if it
/// normalises.
class EncoderHead final : public nn::Module {
 public:
  EncoderHead(const nn::Context& context, const EncoderSizes& sizes);
  /// hidden [batch, time, channels] -> [batch, time or none, channels].
  at::Tensor features(const at::Tensor& hidden, const at::Tensor& lengths) const;
  /// `embedding`: the weight of the token embedding. An embedder's features are its logits.
  ops::Head last_layer(const at::Tensor& embedding) const;
  /// Modules with parameters, that of the classes last.
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
  nn::Dropout *pooled_dropout_, *dropout_;  // before the dense layer and before the classes
};

}  // namespace gputrain::models
