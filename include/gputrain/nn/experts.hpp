// A mixture of experts, in the place of the feed-forward layer of a transformer block.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/transformer.hpp"

namespace gputrain::nn {

/// Several feed-forward layers. Each token uses the few that a router finds most probable; their results are added,
/// weighted by those probabilities (Shazeer et al., arXiv:1701.06538; Jiang et al., Mixtral, arXiv:2401.04088). x [...,
/// channels] -> as x. Parameters are named as in Qwen3-MoE's files: `gate`, and `experts.0.up_proj` and so on.
///
/// On a GPU the host does not learn how many tokens each expert gets (ops/grouped_linear.hpp), unless experts have
/// adapters or biases. In training every expert takes part, if need be with no tokens: its parameters then have
/// gradients of zero.
class Experts final : public Module {
 public:
  struct Options {
    FeedForward::Options expert;
    int64_t count = 0, per_token = 0;
    bool scales_to_one = true;  // a token's weights are divided by their sum
  };

  Experts(const Context& context, const Options& options);
  struct Mixed {
    at::Tensor y;       // as x
    at::Tensor logits;  // [tokens, experts]: the router's
  };
  Mixed forward(const at::Tensor& x) const;

  /// Computes the results for rows of which each has one expert, in the same order: in blocks, as on a GPU, or expert
  /// by expert. rows [rows, channels], chosen int64 [rows].
  at::Tensor in_blocks(const at::Tensor& rows, const at::Tensor& chosen) const;
  at::Tensor one_by_one(const at::Tensor& rows, const at::Tensor& chosen) const;
  const Linear& router() const noexcept { return *gate_; }

 private:
  /// For each token its experts, and their weights in the type that computes: both [tokens, per_token].
  struct Routes {
    at::Tensor experts, weights;
  };
  Routes routes_of(const at::Tensor& logits, at::ScalarType type) const;

  bool goes_in_blocks(const at::Tensor& x) const;
  /// Computes the results for rows that are sorted by expert, in the same order.
  at::Tensor apply(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  Options options_;
  Linear* gate_;
  std::vector<FeedForward*> experts_;
};

/// Losses of the routers of all layers, which spread tokens evenly over experts: 0-dim, at least fp32.
/// `logits` [tokens, experts] of each layer. `counted`: bool [tokens], false for padding; undefined: all count.
struct RouterLosses {
  /// Computes experts x the sum over experts of (share of tokens that chose it) x (its mean probability), as
  /// transformers' load_balancing_loss_func (Fedus et al., Switch Transformers, arXiv:2101.03961, equation 4).
  static at::Tensor balance(const std::vector<at::Tensor>& logits, int64_t per_token, const at::Tensor& counted);
  /// Computes the mean square of the logarithm of the sum of exponentials (Zoph et al., arXiv:2202.08906, equation 5).
  static at::Tensor z(const std::vector<at::Tensor>& logits, const at::Tensor& counted);
};

/// A model that counts in training how many tokens each expert gets.
class ExpertCounts {
 public:
  virtual ~ExpertCounts() = default;
  /// Returns this rank's tokens since the last call, without padding: fp64 [layers with experts, experts], on the
  /// model's device. Undefined: the model has no experts.
  virtual at::Tensor take_expert_counts() = 0;
};

/// Adds the tokens of a pass to such counts. Arguments as in RouterLosses.
void add_expert_counts(const at::Tensor& counts, const std::vector<at::Tensor>& logits, int64_t per_token,
                       const at::Tensor& counted);

}  // namespace gputrain::nn
