// Networks of inverted residual blocks (Sandler et al., arXiv:1801.04381) in torchvision's form: MobileNets and
// EfficientNets are tables of them. Parameters are named as in torchvision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {

/// Convolution without bias, its batch norm, and an activation if there is one.
class ConvNormActivation final : public nn::Module {
 public:
  struct Options {
    int64_t in = 0, out = 0, kernel = 1, stride = 1, groups = 1;
    std::optional<ops::Activation> activation = {};
    double momentum = 0.1;  // momentum of the batch norm

    double multiplications(double pixels_out) const;
  };

  ConvNormActivation(const nn::Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::optional<ops::Activation> activation_;
  nn::ConvNorm layers_;
};

/// Block x + f(x), or f(x) if f changes the shape. f is a 1x1 convolution to more channels, a depthwise one, a
/// squeeze-and-excitation, and a 1x1 convolution back to few channels. Fused, one convolution replaces the first two.
class InvertedResidual final : public nn::Module {
 public:
  struct Options {
    int64_t in = 0, inner = 0, out = 0;  // inner == in: no expansion, and if fused, one convolution is the block
    int64_t kernel = 3, stride = 1;
    bool is_fused = false;
    int64_t squeezed = 0;  // channels inside the squeeze-and-excitation; 0: there is none
    nn::SqueezeExcitation::Gate gate = nn::SqueezeExcitation::Gate::sigmoid;
    ops::Activation activation = ops::Activation::relu;  // the one after all convolutions but the last
    ops::Activation squeezed_activation = ops::Activation::relu;
    double momentum = 0.1;  // momentum of batch norms
    double drop_path = 0;

    bool keeps_shape() const { return stride == 1 && in == out; }
    /// Returns the convolutions before the squeeze-and-excitation, and the one after it, if there is one.
    std::vector<ConvNormActivation::Options> widening() const;
    std::optional<ConvNormActivation::Options> narrowing() const;
    double multiplications(double pixels_in, double pixels_out) const;
  };

  InvertedResidual(const nn::Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  bool keeps_shape_;
  std::vector<ConvNormActivation*> widening_;
  nn::SqueezeExcitation* squeeze_ = nullptr;
  ConvNormActivation* narrowing_ = nullptr;
  nn::DropPath* drop_path_;
};

/// Network without its classifier, which a derived class adds.
class InvertedResidualNet : public Model {
 public:
  struct Plan {
    int64_t stem = 0;                                                            // channels
    std::vector<std::pair<std::string, InvertedResidual::Options>> blocks = {};  // with their names
    std::string last_name = {};
    int64_t last = 0;                                    // channels of the last convolution
    ops::Activation activation = ops::Activation::relu;  // activation of the first and the last convolution
    double momentum = 0.1;                               // momentum of their batch norms
  };

  InvertedResidualNet(const Plan& plan, const nn::Context& context, const DataFacts& facts);

  static Abilities abilities() { return {.announces_units = true, .recomputes_blocks = true}; }

  // Counts multiplications and additions per weight and output pixel, once forward and twice backward.
  double flops_per_sample() const override { return 6 * multiplications_; }

 protected:
  /// Returns the means of the last convolution's channels: [batch, channels].
  at::Tensor features(const at::Tensor& images) const;
  std::vector<Unit> feature_units() const;
  void count_dense(int64_t in, int64_t out) { multiplications_ += static_cast<double>(in * out); }

 private:
  ConvNormActivation *stem_, *last_;
  std::vector<std::pair<std::string, InvertedResidual*>> blocks_;
  std::string last_name_;
  double multiplications_ = 0;
};

}  // namespace gputrain::models
