// Decoder-only transformers: GPT-2, Llama, and mixtures of their options.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/nn/experts.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::models {

/// Keys of rope_scaling in a config.json.
struct RopeScalingSpec {
  std::string type = "none";
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::optional<int64_t> original_max_position_embeddings;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;

  static void describe(config::Description<RopeScalingSpec>& d);
};

struct GptSpec {
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> n_kv_head;
  int64_t n_embd = 768;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> n_inner;
  int64_t n_expert = 0;
  int64_t experts_per_token = 2;
  std::optional<int64_t> expert_inner;
  bool norm_expert_weights = true;
  double router_aux_loss_coef = 0.001;
  double router_z_loss_coef = 0;
  std::vector<std::string> mlp_layer_types;
  std::optional<int64_t> block_size;
  std::optional<int64_t> vocab_size;
  int64_t pad_vocab_to = 0;
  double dropout = 0;
  double neftune_alpha = 0;
  std::optional<int64_t> window;
  std::vector<std::string> layer_types;
  std::optional<double> query_pre_attn_scalar;
  std::optional<bool> bias;
  std::optional<bool> qkv_bias;
  bool qk_norm = false;
  bool qk_norm_across_heads = false;
  std::optional<std::string> layout;
  std::string head = "tokens";
  std::optional<int64_t> num_classes;
  std::vector<std::string> labels = {};
  std::string position = "learned";
  std::string norm = "layernorm";
  std::string activation = "gelu_tanh";
  std::string norms = "before";
  bool parallel_residual = false;
  bool tie_embeddings = true;
  bool scale_embeddings = false;
  double rope_theta = 10000;
  std::optional<double> rope_local_theta;
  double partial_rotary_factor = 1;
  RopeScalingSpec rope_scaling;
  double norm_eps = 1e-5;

  static void describe(config::Description<GptSpec>& d);
};

constexpr double kGptInitStd = 0.02;

/// Places of a block's norms: before its two halves, after them, or both.
enum class NormPlaces { before, after, both };

/// Spec with every default resolved. sizes_of() throws Error(usage) for options that do not fit together.
struct GptSizes {
  int64_t layers, heads, key_heads, channels, head_channels, inner, positions, vocabulary;
  int64_t rotary_channels;  // the first ones of each head
  bool bias, qkv_bias, rotary, rmsnorm, gated;
  bool norms_from_one;  // as in nn::Norm::Options
  NormPlaces norm_places;
  std::optional<double> attention_scale;  // as in ops::AttentionOptions
  ops::Activation activation;
  nn::Naming naming;
  ops::RotaryScaling rotary_scaling;
  std::vector<int64_t> windows;     // one per layer, as in ops::AttentionOptions
  int64_t expert_inner;             // `inner` of each expert
  std::vector<bool> sparse;         // whether each layer has experts
  int64_t classes;                  // number of classes for each text; 0: it predicts tokens
  std::vector<std::string> labels;  // names of the classes; empty: they have none
};
GptSizes sizes_of(const GptSpec& spec, const DataFacts& facts);
nn::Norm::Options norm_options(const GptSpec& spec, const GptSizes& sizes);

/// Block x + attention(norm(x)), then x + feed_forward(norm(x)). Norms may come after; in parallel both read x.
class GptBlock final : public nn::Module {
 public:
  GptBlock(const nn::Context& context, const GptSpec& spec, const GptSizes& sizes, int64_t layer);
  nn::ResidualStream forward(const nn::ResidualStream& in, const nn::Sequence& sequence) const;
  /// Returns the index of the block's table among the model's rotary tables.
  size_t rotary_index() const noexcept { return rotary_index_; }

 private:
  /// Returns the sum of the stream and what was added to it, and the norm of the sum.
  ops::NormedSum read(const nn::Norm* norm, const nn::ResidualStream& stream) const;
  nn::Experts::Mixed fed_forward(const at::Tensor& x) const;

  size_t rotary_index_;
  bool is_parallel_;
  nn::Norm *before_attention_, *after_attention_, *before_feed_forward_, *after_feed_forward_;  // may be null
  nn::SelfAttention* attention_;
  nn::FeedForward* feed_forward_ = nullptr;  // null if the block has experts
  nn::Experts* experts_ = nullptr;
  nn::Dropout* dropout_;
};

class Gpt final : public Model, public nn::ExpertCounts {
 public:
  Gpt(const GptSpec& spec, const nn::Context& context, const DataFacts& facts);
  static InputSpec reads(const GptSpec& spec) {
    return {.field = kTokens,
            .longest = spec.block_size.value_or(0),
            .target = gives_tokens(spec) ? Target::next_token : Target::label};
  }
  static Abilities abilities(const GptSpec& spec) {
    return {.announces_units = true,
            .takes_parts_of_texts = gives_tokens(spec),
            .splits_layers = gives_tokens(spec),
            .runs_in_parts = gives_tokens(spec),
            .recomputes_blocks = true,
            .recomputes_selectively = true,
            .ties_ends = spec.tie_embeddings && gives_tokens(spec),
            .drops_out = spec.dropout > 0,
            .adds_noise = spec.neftune_alpha > 0,
            .norms_across_heads = spec.qk_norm_across_heads,
            .has_router_losses = has_router_losses(spec)};
  }

  at::Tensor forward(const at::Tensor& inputs) override;
  std::vector<Unit> units() override;
  double flops_per_sample() const override;
  std::vector<double> flops_of_units() const override;
  at::Tensor run_units(const Batch& batch, int64_t end) override;
  at::Tensor empty_hidden(const Batch& batch) const override;
  at::Tensor shared_by_ends() const override {
    return head_ == nullptr && score_ == nullptr ? tokens_->weight() : at::Tensor();
  }

  LastLayer last_layer(const Batch& batch) override;
  at::Tensor take_expert_counts() override;
  std::vector<nn::Module*> head_parts() override;

  std::optional<TextLimits> text_limits() const override {
    if (sizes_.classes > 0) return std::nullopt;
    return TextLimits{.vocabulary = sizes_.vocabulary, .length = sizes_.positions};
  }
  at::Tensor next_logits(const NextTokens& next, Memory& earlier) override;

  const GptSpec& spec() const noexcept { return spec_; }
  const GptSizes& sizes() const noexcept { return sizes_; }

 private:
  struct Places {
    at::Tensor positions = {};       // as in nn::Sequence, or [1, time] for all rows
    bool is_one_text = false;        // each row is one text, whatever the positions
    comm::Group* context = nullptr;  // as in nn::Sequence
    ops::Texts texts = {};           // set on a GPU if positions separate texts
    ops::KeyRoom room = {};          // as in nn::Sequence
  };
  static constexpr int64_t kFirstBlock = 1;  // unit of the first block
  int64_t head_unit() const { return kFirstBlock + std::ssize(blocks_); }
  Places places_of(const Batch& batch) const;
  /// Returns the stream after the units [first, end); the first reads `hidden`. `earlier`: one per block, or none.
  nn::ResidualStream stream_after(int64_t first, int64_t end, const at::Tensor& hidden, const at::Tensor& tokens,
                                  const Places& places, std::span<nn::KeyValues> earlier = {},
                                  std::vector<at::Tensor>* routes = nullptr);  // one per block with experts
  at::Tensor normed(const nn::ResidualStream& stream) const;
  /// Runs the whole model up to its last norm.
  at::Tensor hidden_states(const at::Tensor& tokens, const Places& places, std::span<nn::KeyValues> earlier = {}) {
    return normed(stream_after(0, head_unit(), {}, tokens, places, earlier));
  }
  at::Tensor with_noise(const at::Tensor& x) const;
  at::Tensor embedded(const at::Tensor& tokens, const at::Tensor& positions) const;
  at::Tensor logits(const at::Tensor& features) const;  // [..., columns()]
  int64_t columns() const;
  std::vector<at::Tensor> head_parameters();
  static bool gives_tokens(const GptSpec& spec) { return spec.head != "classifier"; }
  static bool has_router_losses(const GptSpec& spec) {
    return spec.n_expert > 0 && (spec.router_aux_loss_coef > 0 || spec.router_z_loss_coef > 0);
  }
  at::Tensor router_loss(const std::vector<at::Tensor>& routes, const at::Tensor& counted) const;
  LastLayer classes_of_texts(const at::Tensor& features, const at::Tensor& counts);
  at::Tensor vocabulary_of(const at::Tensor& columns) const;  // columns of all ranks, without the padding of logits()
  const at::Tensor& head_weight() const { return head_ != nullptr ? head_->weight() : tokens_->weight(); }

  GptSpec spec_;
  GptSizes sizes_;
  double embedding_scale_;
  int64_t sample_tokens_;
  nn::Embedding* tokens_;
  nn::Embedding* positions_ = nullptr;
  std::vector<ops::RotaryTable> rotary_;  // none, or one for all layers, or a second one for layers with a window
  nn::Dropout* dropout_;
  std::vector<GptBlock*> blocks_;
  nn::Norm* norm_;
  nn::Linear* head_ = nullptr;   // null if tied: the head uses the embedding's weight
  nn::Linear* score_ = nullptr;  // layer instead of a head: gives the classes of a text from its last token
  at::Tensor expert_counts_;     // as in nn::ExpertCounts
};

}  // namespace gputrain::models
