#include "encoder_spec.hpp"

#include <algorithm>
#include <utility>

#include "encoder_names.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/spec_checks.hpp"

namespace gputrain::models {
namespace {

HeadKind head_of(const EncoderSpec& spec) {
  if (spec.head == "classifier") return HeadKind::classifier;
  if (spec.head == "tagger") return HeadKind::tagger;
  return spec.head == "embedder" ? HeadKind::embedder : HeadKind::mlm;
}

Pooling pooling_of(const EncoderSpec& spec) {
  const std::string name = spec.pooling.value_or(spec.head == "embedder" ? "mean" : "first");
  if (name == "mean") return Pooling::mean;
  return name == "last" ? Pooling::last : Pooling::first;
}

int64_t encoder_classes_of(const EncoderSpec& spec, const EncoderSizes& sizes, const DataFacts& facts) {
  switch (sizes.head) {
    case HeadKind::mlm:
      return sizes.vocabulary;
    case HeadKind::embedder:
      return sizes.channels;
    default:
      return classes_of(spec.num_classes, facts);
  }
}

void check_modernbert(const EncoderSpec& spec, config::SpecIssues& issues) {
  const bool is_modernbert = spec.variant == "modernbert";
  const char* const hint = "variant: modernbert, or leave it out";
  if (!is_modernbert) {
    if (spec.rope_theta) issues.add("rope_theta", "is of ModernBERT's rotary positions", hint);
    if (spec.window) issues.add("window", "is of ModernBERT's layers", hint);
    if (spec.rope_local_theta) issues.add("rope_local_theta", "is of ModernBERT's rotary positions", hint);
    return;
  }
  if (spec.rope_local_theta && !spec.window) {
    issues.add("rope_local_theta", "is of layers with a window", "leave it out, or give window");
  }
  if (spec.position_offset.value_or(0) != 0) {
    issues.add("position_offset", "is of learned positions, and modernbert has rotary ones", "leave it out");
  }
  if (spec.activation == "relu") {
    issues.add("activation", "modernbert's feed-forward layers have a gate, which relu would overwrite", "gelu");
  }
  if (spec.n_embd % spec.n_head == 0 && spec.n_embd / spec.n_head % 2 != 0) {
    issues.add("n_embd",
               "rotary positions rotate pairs of channels, but " + std::to_string(spec.n_embd / spec.n_head) +
                   " per head is odd",
               "for instance n_embd: " + std::to_string((spec.n_embd / spec.n_head + 1) * spec.n_head));
  }
}

void check_head(const EncoderSpec& spec, config::SpecIssues& issues) {
  const bool has_classes = spec.head == "classifier" || spec.head == "tagger";
  if (spec.num_classes && !has_classes) {
    issues.add("num_classes", "is of a classifier or a tagger, but head is " + spec.head,
               "head: classifier, or leave it out");
  }
  const bool may_pool = spec.head == "embedder" || (spec.head == "classifier" && spec.variant == "modernbert");
  if (!may_pool && spec.pooling.value_or("first") != "first") {
    issues.add("pooling", "other than first is of head: embedder, and of modernbert's classifier", "leave it out");
  }
  if (spec.normalize && spec.head != "embedder") {
    issues.add("normalize", "is of head: embedder", "leave it out");
  }
  if (spec.pooling == "last" && spec.head == "classifier") {
    issues.add("pooling", "modernbert's classifier reads the first token or the mean", "pooling: mean");
  }
}

}  // namespace

Target target_of(const EncoderSpec& spec) {
  switch (head_of(spec)) {
    case HeadKind::classifier:
      return Target::label;
    case HeadKind::tagger:
      return Target::tags;
    case HeadKind::embedder:
      return Target::pairs;
    case HeadKind::mlm:
      break;
  }
  return Target::masked;
}

EncoderSizes encoder_sizes_of(const EncoderSpec& spec, const DataFacts& facts) {
  if (facts.input_shape.size() != 1) {
    throw Error(ExitCode::usage, {.what = "bert needs tokens, but the data has samples of " +
                                          std::to_string(facts.input_shape.size()) + " dims",
                                  .where = "model.type",
                                  .hint = "use convnet or resnet18 for images"});
  }
  EncoderSizes sizes{};
  const EncoderVariant& variant = encoder_variant(spec.variant);
  sizes.variant = &variant;
  sizes.head = head_of(spec);
  sizes.layers = spec.n_layer;
  sizes.heads = spec.n_head;
  sizes.channels = spec.n_embd;
  sizes.inner = spec.n_inner.value_or(4 * spec.n_embd);
  sizes.positions = spec.block_size.value_or(std::max(facts.input_shape[0], facts.longest_text));
  sizes.position_offset = spec.position_offset.value_or(variant.position_offset);
  sizes.token_types = spec.type_vocab_size.value_or(variant.token_types);
  sizes.has_norms_before = variant.has_norms_before;
  sizes.activation = ops::activation_from_name(spec.activation);
  sizes.norm_eps = spec.norm_eps.value_or(sizes.has_norms_before ? 1e-5 : 1e-12);
  sizes.dropout = spec.dropout;
  sizes.attention_dropout = spec.attention_dropout.value_or(spec.dropout);
  sizes.head_dropout = spec.head_dropout.value_or(spec.dropout);
  sizes.rope_theta = spec.rope_theta.value_or(160000);
  sizes.rope_local_theta = spec.rope_local_theta.value_or(sizes.rope_theta);
  sizes.windows = windows_of(spec.n_layer, spec.window, spec.layer_types);
  sizes.pooling = pooling_of(spec);
  sizes.normalizes = spec.normalize;
  // If the classes are tokens, data may only give their number.
  const bool classes_are_tokens = sizes.head == HeadKind::mlm && facts.vocabulary == 0;
  sizes.vocabulary = classes_of(
      spec.vocab_size, {.num_classes = classes_are_tokens ? facts.num_classes : facts.vocabulary}, "vocab_size");
  sizes.classes = encoder_classes_of(spec, sizes, facts);
  sizes.labels = names_of_rows(sizes.classes, facts.class_names, spec.labels);
  if (facts.input_shape[0] > sizes.positions) {
    throw Error(ExitCode::usage, {.what = "samples have " + std::to_string(facts.input_shape[0]) +
                                          " tokens, block_size is " + std::to_string(sizes.positions),
                                  .where = "model.config.block_size",
                                  .hint = "block_size: " + std::to_string(facts.input_shape[0])});
  }
  return sizes;
}

void EncoderSpec::describe(config::Description<EncoderSpec>& d) {
  d.summary("An encoder of texts with a head for what is learned. The defaults are BERT's.");
  d.key("variant", &EncoderSpec::variant,
        "whose blocks and names of parameters it has; modernbert: norms before the halves of a block, rotary "
        "positions, a gate in feed-forward layers, no biases")
      .choices(encoder_variant_names());
  d.key("n_layer", &EncoderSpec::n_layer, "blocks").range(1, kMostLayers).aliases({"num_hidden_layers", "n_layers"});
  d.key("n_head", &EncoderSpec::n_head, "attention heads")
      .range(1, kMostChannels)
      .aliases({"num_attention_heads", "n_heads"});
  d.key("n_embd", &EncoderSpec::n_embd, "channels").range(1, kMostChannels).aliases({"hidden_size", "dim"});
  d.key("n_inner", &EncoderSpec::n_inner, "channels inside the feed-forward layers; null: 4 n_embd")
      .range(1, kMostRows)
      .aliases({"intermediate_size", "hidden_dim"});
  d.key("block_size", &EncoderSpec::block_size, "longest text; null: the data's")
      .range(1, kMostRows)
      .unit("tokens")
      .aliases({"max_position_embeddings"});
  d.key("vocab_size", &EncoderSpec::vocab_size, "size of the vocabulary; null: the data's").range(1, kMostRows);
  d.key("type_vocab_size", &EncoderSpec::type_vocab_size,
        "kinds of tokens that have an embedding of their own, as questions and answers; null: 2 in bert, 1 in roberta, "
        "else 0")
      .range(0, kMostRows);
  d.key("position_offset", &EncoderSpec::position_offset,
        "learned positions before a text's first, which no text has; null: 2 in roberta, else 0")
      .range(0, kMostRows);
  d.key("activation", &EncoderSpec::activation, "inside the feed-forward layers, and before the norm of an mlm head")
      .choices({"gelu", "gelu_tanh", "relu", "silu"})
      .aliases({"hidden_act", "hidden_activation"});
  d.key("norm_eps", &EncoderSpec::norm_eps, "added to the variance in normalisations; null: 1e-12, in modernbert 1e-5")
      .above(0)
      .aliases({"layer_norm_eps"});
  d.key("dropout", &EncoderSpec::dropout, "probability on embeddings and in each block")
      .range(0, 0.999)
      .aliases({"hidden_dropout_prob"});
  d.key("attention_dropout", &EncoderSpec::attention_dropout, "the same on attention weights; null: dropout")
      .range(0, 0.999)
      .aliases({"attention_probs_dropout_prob"});
  d.key("head_dropout", &EncoderSpec::head_dropout, "the same in a classifier or a tagger; null: dropout")
      .range(0, 0.999)
      .aliases({"classifier_dropout", "seq_classif_dropout"});
  d.key("window", &EncoderSpec::window,
        "modernbert: a token attends to those less than so many places away; null: to all")
      .range(1, kMostRows)
      .unit("tokens");
  d.key("layer_types", &EncoderSpec::layer_types,
        "the kind of each layer, repeated up to n_layer; those with sliding_attention have the window. []: all have it")
      .choices({kSlidingAttention, "full_attention"});
  d.key("rope_theta", &EncoderSpec::rope_theta, "modernbert: base of the rotary angles; null: 160000")
      .above(0)
      .aliases({"global_rope_theta"});
  d.key("rope_local_theta", &EncoderSpec::rope_local_theta,
        "modernbert: their base in layers with a window; null: as in the others")
      .above(0)
      .aliases({"local_rope_theta"});
  d.key("head", &EncoderSpec::head,
        "what it gives: tokens that were masked, a class of each text, a class of each token, or a vector of each text")
      .choices({"mlm", "classifier", "tagger", "embedder"});
  d.key("num_classes", &EncoderSpec::num_classes, "classes of a classifier or a tagger; null: the data's")
      .range(1, kMostRows)
      .aliases({"num_labels"});
  d.key("pooling", &EncoderSpec::pooling,
        "which of its tokens a text's vector is made of; null: first, in an embedder mean")
      .choices({"mean", "first", "last"})
      .aliases({"classifier_pooling"});
  d.key("normalize", &EncoderSpec::normalize, "an embedder's vectors are divided by their length");
  d.key("labels", &EncoderSpec::labels, kLabelsHelp);
  d.check([](const EncoderSpec& spec, config::SpecIssues& issues) {
    check_division(issues, "n_embd", "n_embd", spec.n_embd, "n_head", spec.n_head);
    check_layer_types(spec.n_layer, spec.window, spec.layer_types, issues);
    check_modernbert(spec, issues);
    check_head(spec, issues);
    if (spec.type_vocab_size.value_or(0) > 0 && encoder_variant(spec.variant).types == nullptr) {
      issues.add("type_vocab_size", spec.variant + " does not tell types of tokens apart", "leave it out");
    }
  });
}

}  // namespace gputrain::models
