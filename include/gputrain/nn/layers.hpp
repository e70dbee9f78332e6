// Layers of models. Initial values are those of torch.nn unless a model sets others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/module.hpp"
#include "gputrain/nn/packing.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/adapted_linear.hpp"
#include "gputrain/ops/conv_norm.hpp"
#include "gputrain/ops/normalization.hpp"

namespace gputrain::nn {

/// A function of a dense layer's input and output that is added to its output, as adapters do. In evaluation it is
/// linear: the product of x and a matrix.
class Branch : public Module {
 public:
  using Module::Module;
  /// Returns y + f(x), without changing y: x [..., in], y [..., out] -> as y.
  virtual at::Tensor add_to(const at::Tensor& y, const at::Tensor& x) const = 0;
  /// Returns the matrix [out, in], in the master type.
  virtual at::Tensor matrix() const = 0;
  /// Makes the matrix zero.
  virtual void clear() = 0;
  /// Makes what is measured of the layer's weight fit it, as long as the branch has not been trained.
  virtual void fit() {}
  /// Returns whether training begins with values that are found in the layer's weight. They change no result: until
  /// start(), the branch has others that do not either.
  virtual bool starts_from_weight() const { return false; }
  /// Finds these values, which are buffers.
  virtual void find_start() {}
  /// Copies them to the parameters.
  virtual void start() {}
  /// Returns its part of a joined computation for this x, if add_to() gives y + scale B A x and no more; weight and
  /// bias are left out. Empty: it is something else.
  virtual std::optional<ops::AdaptedLinear> low_rank(const at::Tensor& /*x*/) const { return std::nullopt; }
};

/// y = x W^T + b over the last dim. `weight` [out, in] (or [in, out], see Order), `bias` [out].
class Linear final : public Module {
 public:
  enum class Order { out_in, in_out };  // in_out: the layout of GPT-2's files
  enum class Shared { no, outputs, inputs };
  struct Options {
    int64_t in = 0, out = 0;
    bool bias = true;
    Order order = Order::out_in;
    std::optional<Init> weight_init = {};  // default: torch.nn.Linear's, for the bias too; if set, the bias is zero
    /// The dimension that the ranks of Context::tensor_group share. outputs: x is an ops::split_input(), and y has the
    /// rank's outputs. inputs: x has the rank's inputs, and y is summed over the ranks.
    Shared shared = Shared::no;
    std::vector<int64_t> sections = {};  // those of device::Split for shared outputs; empty: one
  };

  Linear(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;
  /// Returns the weight as it is stored; undefined if it is packed.
  const at::Tensor& weight() const noexcept { return weight_; }
  const at::Tensor& bias() const noexcept { return bias_; }  // may be undefined
  const Options& options() const noexcept { return options_; }

  /// Adds a Branch, whose parameters are named as if they were the layer's. Call before the arena is built. Code that
  /// computes with weight() instead of forward() must ask has_branch().
  template <class Added, class... Arguments>
  void add_branch(Arguments&&... arguments) {
    GPUTRAIN_ASSERT(branch_ == nullptr, "a dense layer has one branch");
    branch_ = add_child<Added>("", context(), std::forward<Arguments>(arguments)...);
  }
  bool has_branch() const noexcept { return branch_ != nullptr; }
  Branch* branch() const noexcept { return branch_; }  // null: there is none

  /// Replaces a frozen weight by the tensors of a packing, frozen parameters `weight` and `weight_NAME`, which packed()
  /// fills. `stored`: type of the values before they are packed. Call before the arena is built. Code that computes
  /// with weight() must ask is_packed().
  void pack(std::shared_ptr<const Packing> packing, at::ScalarType stored);
  bool is_packed() const noexcept { return packed_ != nullptr; }
  /// Replaces the tensors of the packing by the matrix that they stand for, in the type that it was packed from.
  void unpack();
  const Packed& packed() const;
  bool is_in_out() const noexcept { return options_.order == Order::in_out; }
  /// Returns the sizes of the weight as it is stored when it is not packed.
  std::vector<int64_t> stored_sizes() const;
  /// Returns a frozen weight as a product reads it, packed or not.
  ops::FrozenMatrix frozen_matrix() const;
  /// Returns the weight [out, in], packed or not, in this type or the master type.
  at::Tensor matrix(std::optional<at::ScalarType> type = {}) const;
  /// Computes x W^T + bias, packed or not, without the branch. The bias may be undefined.
  at::Tensor product(const at::Tensor& x, const at::Tensor& bias) const;

  /// Adds the branch's matrix to the weight and makes the branch zero: the layer's results stay.
  void merge_branch();

 private:
  friend std::vector<at::Tensor> forward_each(const std::vector<Linear*>& layers, const at::Tensor& x);
  static std::vector<at::Tensor> adapted(const std::vector<const Linear*>& layers, const at::Tensor& x);

  std::optional<device::Split> split(Shared along) const;
  at::Tensor with_branch(at::Tensor y, const at::Tensor& x) const;

  Options options_;
  at::Tensor weight_, bias_;
  std::unique_ptr<Packed> packed_;
  Branch* branch_ = nullptr;
};

/// Returns forward() of each layer on the same x; faster on a GPU.
std::vector<at::Tensor> forward_each(const std::vector<Linear*>& layers, const at::Tensor& x);

/// `weight` [out, in / groups, kernel, kernel], `bias` [out].
class Conv2d final : public Module {
 public:
  struct Options {
    int64_t in = 0, out = 0, kernel = 3, stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;  // groups of channels, computed separately; `in` for a depthwise convolution
    bool bias = true;
    std::optional<Init> weight_init = {};  // as in Linear
  };

  Conv2d(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  friend struct ConvNorm;

  Options options_;
  at::Tensor weight_, bias_;
};

/// A convolution backwards: makes images `stride` times as large. `weight` [in, out, stride, stride], `bias` [out]; the
/// filters do not overlap.
class ConvTranspose2d final : public Module {
 public:
  struct Options {
    int64_t in = 0, out = 0, stride = 2;
  };

  ConvTranspose2d(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Options options_;
  at::Tensor weight_, bias_;
};

/// `weight`, `bias` [channels]; buffers `running_mean`, `running_var`, `num_batches_tracked`.
class BatchNorm2d final : public Module {
 public:
  struct Options {
    int64_t channels = 0;
    Init weight_init = Init::ones();
    double eps = 1e-5;
    double momentum = 0.1;  // weight of the batch in the running statistics
  };

  BatchNorm2d(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x);
  at::Tensor forward_relu(const at::Tensor& x, const at::Tensor& residual = {});  // relu(forward(x) + residual)

 private:
  friend struct ConvNorm;

  ops::BatchNormOptions begin_batch();
  at::Tensor weight() const;  // in the master type
  at::Tensor bias() const;

  Options options_;
  at::Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
};

/// A convolution and the batch norm after it, both owned by another module: together they are one operator.
struct ConvNorm {
  Conv2d* conv = nullptr;
  BatchNorm2d* norm = nullptr;

  at::Tensor forward(const at::Tensor& x) const;
  /// Applies the layers in order, each with a ReLU. The residual, if defined, is added before the last ReLU.
  static at::Tensor forward_relu(const std::vector<ConvNorm>& layers, const at::Tensor& x,
                                 const at::Tensor& residual = {});

 private:
  ops::ConvNormLayer operands() const;
};

/// Normalises the last dim: LayerNorm with `weight` and optional `bias`, or RMSNorm with `weight` [channels].
class Norm final : public Module {
 public:
  enum class Kind { layernorm, rmsnorm };
  struct Options {
    Kind kind = Kind::layernorm;
    int64_t channels = 0;
    bool bias = true;  // RMSNorm has none
    double eps = 1e-5;
    bool from_one = false;        // multiplies by 1 + weight, and weights begin at 0
    bool norms_own_part = false;  // each rank of Context::tensor_group norms something else
  };

  Norm(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;
  /// Returns sum = dropout(x) + residual and its norm. If x is undefined, the sum is the residual.
  ops::NormedSum forward_sum(const at::Tensor& x, const at::Tensor& residual, double dropout = 0) const;

 private:
  at::Tensor factor() const;  // in the master type
  at::Tensor bias() const;

  Options options_;
  at::Tensor weight_, bias_;
};

/// `weight` [rows, channels]. Returns rows in the master type, so that a sum of several embeddings is cast once.
class Embedding final : public Module {
 public:
  struct Options {
    int64_t rows = 0, channels = 0;
    double init_std = 1;
    bool shares_rows = false;  // among the ranks of Context::tensor_group; without first_rows()
  };

  Embedding(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& tokens) const;  // int64 [...] -> [..., channels]
  at::Tensor first_rows(int64_t count) const;          // [count, channels]
  const at::Tensor& weight() const noexcept { return weight_; }
  int64_t first_row() const noexcept { return first_row_; }  // first row of this rank

 private:
  at::Tensor weight_;
  comm::Group* group_ = nullptr;  // ranks that share the rows
  int64_t first_row_ = 0;
};

/// Active in training only.
class Dropout final : public Module {
 public:
  Dropout(const Context& context, double probability) : Module(context), probability_(probability) {}
  at::Tensor forward(const at::Tensor& x) const;
  double active_probability() const noexcept { return is_training() ? probability_ : 0; }

 private:
  double probability_;
};

/// Stochastic depth (Huang et al., arXiv:1603.09382) of what a block adds to its input [batch, ...]: dropout of whole
/// samples, in training only.
class DropPath final : public Module {
 public:
  DropPath(const Context& context, double probability) : Module(context), probability_(probability) {}
  at::Tensor forward(const at::Tensor& added) const;
  double active_probability() const noexcept { return is_training() ? probability_ : 0; }

 private:
  double probability_;
};

/// Squeeze-and-excitation (Hu et al., arXiv:1709.01507): x [batch, channels, height, width] times a factor for each
/// sample and channel. Two 1x1 convolutions, `fc1` and `fc2`, compute the factors from the channels' means.
class SqueezeExcitation final : public Module {
 public:
  enum class Gate { sigmoid, hardsigmoid };
  struct Options {
    int64_t channels = 0, squeezed = 0;  // squeezed: between the convolutions
    ops::Activation activation = ops::Activation::relu;
    Gate gate = Gate::sigmoid;  // makes factors from 0 to 1
  };

  SqueezeExcitation(const Context& context, const Options& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Options options_;
  Conv2d *squeeze_, *excite_;
};

}  // namespace gputrain::nn
