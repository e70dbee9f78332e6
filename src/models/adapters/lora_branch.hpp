// The branch of a dense layer that LoRA trains, also with DoRA's magnitudes and with a start taken from the weight.
#pragma once

#include <optional>
#include <string>

#include "gputrain/nn/layers.hpp"
#include "lora.hpp"

namespace gputrain::models {

/// Adds scale (B A - B0 A0) to the layer's weight W. A0 and B0 are what A and B begin with if they are taken from W, so
/// that W stays as it is; else they are not there. With DoRA (Liu et al., arXiv:2402.09353), each row of the sum is
/// scaled to a length that is trained: the sum's length is a constant for the gradient.
class LoraBranch final : public nn::Branch {
 public:
  /// `layer` owns the branch.
  LoraBranch(const nn::Context& context, const nn::Linear& layer, const LoraSettings& settings, const LoraSize& size);

  at::Tensor add_to(const at::Tensor& y, const at::Tensor& x) const override;
  std::optional<ops::AdaptedLinear> low_rank(const at::Tensor& x) const override;
  at::Tensor matrix() const override;
  void clear() override;
  void fit() override;
  bool starts_from_weight() const override { return a_start_.defined(); }
  void find_start() override;
  void start() override;

  /// Returns the size that the adapter has in files, where A0 and B0 stand beside A and B.
  LoraSize size_in_files() const;

 private:
  struct Factors {
    at::Tensor a, b;  // [rank, in], [out, rank]
  };
  Factors factors(at::ScalarType type) const;
  at::Tensor row_norms() const;

  const nn::Linear& layer_;
  LoraSize size_;
  std::string init_;
  bool rslora_;
  double scale_, dropout_;
  nn::Linear *a_, *b_;
  at::Tensor a_start_, b_start_;  // A0 and -B0, or undefined
  at::Tensor magnitude_;          // [out], or undefined
  bool is_zero_ = false;          // the matrix has been made zero
};

}  // namespace gputrain::models
