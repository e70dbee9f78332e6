// Options of an encoder, and the sizes that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {

struct EncoderSpec {
  std::string variant = "bert";
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_embd = 768;
  std::optional<int64_t> n_inner;
  std::optional<int64_t> block_size;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> type_vocab_size;
  std::optional<int64_t> position_offset;
  std::string activation = "gelu";
  std::optional<double> norm_eps;
  double dropout = 0.1;
  std::optional<double> attention_dropout;
  std::optional<double> head_dropout;
  std::optional<int64_t> window;
  std::vector<std::string> layer_types;
  std::optional<double> rope_theta;
  std::optional<double> rope_local_theta;
  std::string head = "mlm";
  std::optional<int64_t> num_classes;
  std::optional<std::string> pooling;
  bool normalize = false;
  std::vector<std::string> labels;

  static void describe(config::Description<EncoderSpec>& d);
};

constexpr double kEncoderInitStd = 0.02;

struct EncoderVariant;  // encoder_names.hpp

enum class HeadKind {
  mlm,         // logits of the vocabulary for each token
  classifier,  // logits of the classes for each text
  tagger,      // logits of the classes for each token
  embedder     // a vector of any length for each text
};

enum class Pooling { mean, first, last };  // way to pool a text's tokens

/// Returns what a sample of texts is for its head.
Target target_of(const EncoderSpec& spec);

/// Spec with every default resolved. encoder_sizes_of() throws Error(usage) for options that do not fit the data.
struct EncoderSizes {
  const EncoderVariant* variant;
  int64_t layers, heads, channels, inner, vocabulary;
  int64_t positions;        // tokens of the longest text
  int64_t position_offset;  // learned positions that no text has, before its first
  int64_t token_types;      // 0: it does not use them
  bool has_norms_before;    // norms before the halves of blocks, with rotary positions and gated feed-forward layers
  ops::Activation activation;
  double norm_eps, dropout, attention_dropout, head_dropout;
  double rope_theta, rope_local_theta;  // bases for layers without a window, and with one
  std::vector<int64_t> windows;         // one per layer, as in ops::AttentionOptions
  HeadKind head;
  Pooling pooling;
  bool normalizes;                  // whether an embedder's vectors get unit length
  int64_t classes;                  // columns of the head; for an embedder its channels
  std::vector<std::string> labels;  // names of the classes; empty: they have none
};
EncoderSizes encoder_sizes_of(const EncoderSpec& spec, const DataFacts& facts);

}  // namespace gputrain::models
