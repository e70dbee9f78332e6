// The two halves of a transformer block. Parameter names and layouts are those of published files.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/nn/key_values.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/module.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/attention.hpp"

namespace gputrain::nn {

/// The published architecture that defines names and layouts of parameters.
enum class Naming {
  gpt2,        // c_attn (queries, keys and values in one), c_fc (gate and up in one), c_proj; weights [in, out]
  llama,       // q_proj, k_proj, v_proj, o_proj; gate_proj, up_proj, down_proj; weights [out, in]
  phi3,        // as llama, but qkv_proj and gate_up_proj, each in one
  gpt_neox,    // query_key_value (head after head its query, key and value), dense; dense_h_to_4h, dense_4h_to_h
  bert,        // self.query, self.key, self.value, output.dense; intermediate.dense, output.dense
  distilbert,  // q_lin, k_lin, v_lin, out_lin; lin1, lin2
  modernbert,  // Wqkv (queries, keys and values in one), Wo; Wi (gate and up in one), Wo
  timm,        // qkv (queries, keys and values in one), proj; fc1, fc2
  convnext     // 3, 5, of torchvision's list of layers; without attention
};

/// The facts about a batch that layers of attention need besides its channels.
struct Sequence {
  std::optional<ops::RotaryTable> rotary = {};  // rotates queries and keys; none if x contains the positions already
  at::Tensor positions = {};                    // as in ops::AttentionOptions; undefined: one text a row
  at::Tensor lengths = {};                      // as in ops::AttentionOptions; undefined: nothing is padding
  ops::Texts texts = {};                        // as in ops::AttentionOptions
  ops::KeyRoom room = {};                       // place of the one token of each row in reserved memory
  comm::Group* context = nullptr;               // the ranks that have the other positions; null: x has all
  KeyValues* earlier = nullptr;  // keys of the tokens before x; those of x are appended. Null: x is the whole text
};

/// The residual stream between blocks: x + added. The norm that reads it does the addition in the same pass.
struct ResidualStream {
  at::Tensor x, added = {};  // undefined `added` counts as zero
  at::Tensor routes = {};    // logits of the router of a block with experts [tokens, experts]

  at::Tensor sum() const;  // x + added
};

/// Self-attention: x [batch, time, channels] -> as x. Grouped-query attention if key_heads < heads. Ranks of
/// Context::tensor_group, if there are any, have equal parts of the heads, and of the key heads; if there are too few
/// key heads for that, each rank computes all, and reads those of its heads.
class SelfAttention final : public Module {
 public:
  struct Options {
    Naming naming = Naming::gpt2;
    int64_t channels = 0, heads = 1, key_heads = 1;
    int64_t head_channels = 0;  // of each head; 0: channels / heads
    bool causal = true;         // as in ops::AttentionOptions
    bool bias = true;
    bool input_bias = true;       // of queries, keys and values
    bool norms_heads = false;     // RMSNorm of each head's query and key, before they are rotated; with Naming::llama
    bool norms_across = false;    // over all heads together, with a weight for each channel of each head
    bool norms_from_one = false;  // as in Norm::Options
    double norm_eps = 1e-6;
    double dropout = 0;  // on the attention weights
    int64_t window = 0;  // as in ops::AttentionOptions
    std::optional<double> scale = {};
    Init weight_init = Init::normal(0.02), output_init = Init::normal(0.02);
  };

  SelfAttention(const Context& context, const Options& options);

  at::Tensor forward(const at::Tensor& x, const Sequence& sequence) const;

 private:
  bool is_by_head() const noexcept { return options_.naming == Naming::gpt_neox; }
  ops::Heads project(const at::Tensor& x) const;
  at::Tensor of_own_heads(const at::Tensor& keys) const;

  Options options_;
  int64_t head_channels_;
  int64_t heads_, key_heads_;  // of this rank
  bool shares_keys_ = true;
  std::vector<Linear*> inputs_;  // one fused layer, or q, k, v
  Norm *query_norm_ = nullptr, *key_norm_ = nullptr;
  Linear* output_;
};

/// Two dense layers with an activation between them, or the three of a gated layer (Shazeer, arXiv:2002.05202): x [...,
/// channels] -> as x. Ranks of Context::tensor_group have parts of the inner channels.
class FeedForward final : public Module {
 public:
  struct Options {
    Naming naming = Naming::gpt2;
    int64_t channels = 0, inner = 0;
    bool gated = false;  // the activation, of the gate, may not overwrite its input; with silu it is SwiGLU
    ops::Activation activation = ops::Activation::gelu_tanh;
    bool bias = true;
    double dropout = 0;  // on the input of the last layer
    Init weight_init = Init::normal(0.02), output_init = Init::normal(0.02);
  };

  FeedForward(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

  /// Returns whether forward_grouped() takes these layers, which have the same options.
  static bool can_be_grouped(const std::vector<FeedForward*>& layers);
  /// Computes forward() of several layers, each with the blocks of its group: x [blocks, rows, channels] -> as x; see
  /// ops::RowBlocks.
  static at::Tensor forward_grouped(const std::vector<FeedForward*>& layers, const at::Tensor& x,
                                    const at::Tensor& groups);

 private:
  /// Returns layer `index` of each: first the inputs, then the output.
  static std::vector<const Linear*> layer_of_each(const std::vector<FeedForward*>& all, size_t index);

  bool is_one_operator() const;
  at::Tensor inner(const at::Tensor& x) const;  // input of the last layer
  at::Tensor of_one_layer(at::Tensor y) const;  // inner(), where one layer gives all of it
  at::Tensor activated(at::Tensor inner) const;
  at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) const;

  Options options_;
  std::vector<Linear*> inputs_;  // one layer, or gate and up
  Linear* output_;
};

}  // namespace gputrain::nn
