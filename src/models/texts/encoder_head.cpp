#include "encoder_head.hpp"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sum.h>

#include "encoder_names.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::models {
namespace {

at::Tensor mean_of_texts(const at::Tensor& hidden, const at::Tensor& lengths) {
  const int64_t time = hidden.size(1);
  const auto type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!lengths.defined()) return at::sum(hidden, 1, false, type) / time;
  const at::Tensor present = at::arange(time, lengths.options()).lt(lengths.unsqueeze(1)).unsqueeze(2);
  return at::sum(hidden * present, 1, false, type) / lengths.clamp_min(1).unsqueeze(1);
}

at::Tensor last_of_texts(const at::Tensor& hidden, const at::Tensor& lengths) {
  if (!lengths.defined()) return hidden.select(1, -1).clone();
  const at::Tensor last = (lengths - 1).clamp_min(0).view({-1, 1, 1}).expand({-1, 1, hidden.size(2)});
  return hidden.gather(1, last).squeeze(1);
}

/// Divides vectors by their lengths in at least fp32, as torch.nn.functional.normalize does.
at::Tensor of_unit_length(const at::Tensor& vectors) {
  constexpr double kShortest = 1e-12;
  const at::Tensor wide = vectors.scalar_type() == at::kDouble ? vectors : vectors.to(at::kFloat);
  const at::Tensor lengths = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
  return ops::cast(wide / lengths.clamp_min(kShortest), vectors.scalar_type());
}

ops::Activation head_activation_of(const EncoderSizes& sizes) {
  if (sizes.head == HeadKind::classifier) return sizes.variant->of_classifier;
  return sizes.variant->of_tokens.value_or(sizes.activation);
}

}  // namespace

at::Tensor pooled(const at::Tensor& hidden, const at::Tensor& lengths, Pooling pooling) {
  switch (pooling) {
    case Pooling::mean:
      return ops::cast(mean_of_texts(hidden, lengths), hidden.scalar_type());
    case Pooling::last:
      return last_of_texts(hidden, lengths);
    case Pooling::first:
      break;
  }
  return hidden.select(1, 0).clone();  // the loss may write over it
}

VocabularyBias::VocabularyBias(const nn::Context& context, int64_t vocabulary) : Module(context) {
  bias_ = register_parameter("bias", {vocabulary}, nn::Init::zeros(), nn::ParameterRole::bias, nn::ReadAs::compute);
}

EncoderHead::EncoderHead(const nn::Context& context, const EncoderSizes& sizes)
    : Module(context),
      kind_(sizes.head),
      pooling_(sizes.pooling),
      normalizes_(sizes.normalizes),
      classes_(sizes.classes),
      activation_(head_activation_of(sizes)) {
  const HeadNames names = head_names_of(*sizes.variant, sizes.head);
  const bool has_bias = !sizes.has_norms_before;
  const auto add_linear = [&](const char* name, int64_t out, bool bias, double deviation) {
    return add_child<nn::Linear>(
        name, context,
        nn::Linear::Options{
            .in = sizes.channels, .out = out, .bias = bias, .weight_init = nn::Init::normal(deviation)});
  };
  if (names.dense != nullptr) dense_ = add_linear(names.dense, sizes.channels, has_bias, kEncoderInitStd);
  if (names.norm != nullptr) {
    norm_ = add_child<nn::Norm>(names.norm, context,
                                nn::Norm::Options{.channels = sizes.channels, .bias = has_bias, .eps = sizes.norm_eps});
  }
  if (kind_ == HeadKind::mlm) {
    vocabulary_ = add_child<VocabularyBias>(names.classes, context, sizes.vocabulary);
  } else if (names.classes != nullptr) {
    const double deviation = has_bias ? kEncoderInitStd : 1 / std::sqrt(static_cast<double>(sizes.channels));
    classifier_ = add_linear(names.classes, sizes.classes, true, deviation);
  }
  const bool drops_pooled = sizes.variant->drops_pooled && kind_ == HeadKind::classifier;
  pooled_dropout_ = add_child<nn::Dropout>("pooled_dropout", context, drops_pooled ? sizes.head_dropout : 0);
  dropout_ = add_child<nn::Dropout>("head_dropout", context, classifier_ != nullptr ? sizes.head_dropout : 0);
}

at::Tensor EncoderHead::features(const at::Tensor& hidden, const at::Tensor& lengths) const {
  at::Tensor x = is_pooled() ? pooled(hidden, lengths, pooling_) : hidden;
  if (dense_ != nullptr) x = ops::activate(dense_->forward(pooled_dropout_->forward(x)), activation_);
  if (norm_ != nullptr) x = norm_->forward(x);
  if (normalizes_) x = of_unit_length(x);
  return dropout_->forward(x);
}

ops::Head EncoderHead::last_layer(const at::Tensor& embedding) const {
  if (kind_ == HeadKind::embedder) return {};
  ops::Head head{.logits = {}, .parameters = {}, .columns = classes_};
  if (vocabulary_ != nullptr) {
    const at::Tensor& bias = vocabulary_->bias();
    // Matrix units, and our loss kernel, need whole packs of columns.
    constexpr int64_t kPack = 64;
    if (context().device.is_cuda()) head.columns = ceil_divide(classes_, kPack) * kPack;
    head.logits = [policy = context().policy, embedding, bias, columns = head.columns](const at::Tensor& x) {
      return ops::linear_padded(policy, x, embedding, bias, columns);
    };
    head.parameters = {embedding, bias};
    return head;
  }
  head.logits = [layer = classifier_](const at::Tensor& x) { return layer->forward(x); };
  classifier_->each_parameter([&](const std::string&, nn::Parameter& one) { head.parameters.push_back(one.value); });
  return head;
}

std::vector<nn::Module*> EncoderHead::parts() const {
  std::vector<nn::Module*> parts;
  const std::initializer_list<nn::Module*> all{dense_, norm_, vocabulary_, classifier_};
  for (nn::Module* part : all) {
    if (part != nullptr) parts.push_back(part);
  }
  return parts;
}

}  // namespace gputrain::models
