#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unsafe_split_with_sizes.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../cublas/gemm.hpp"
#include "activated_product.hpp"
#include "gputrain/core/error.hpp"
#include "gradient_place.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Given = std::optional<at::Tensor>;

/// Returns a weight [out, in] or [in, out] as a matrix [in, out].
at::Tensor matrix_of(const at::Tensor& copy, bool in_out) { return in_out ? copy : copy.t(); }

at::Tensor times(const at::Tensor& x, const at::Tensor& matrix, const Given& bias) {
  const at::Tensor y = at::empty({x.size(0), matrix.size(1)}, x.options());
  gemm({.a = x,
        .b = matrix,
        .out = y,
        .epilogue = bias ? Epilogue::bias : Epilogue::none,
        .vector = bias.value_or(at::Tensor())});
  return y;
}

struct Gradients {
  at::Tensor weight, bias;  // in the weight's type; weight is undefined if it was added to its .grad
};

/// Writes dy^T x to `out`, or adds it, and the sums of dy's columns to `sums` if that is defined. cuBLAS has its
/// fastest kernels for columns in whole packs of 16 bytes. 50257 classes are not a multiple of that: a second product
/// computes the rest.
void gemm_in_packs(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& out, bool adds,
                   const at::Tensor& sums = {}) {
  constexpr int64_t kPack = 8;
  const int64_t packed = dy.size(1) / kPack * kPack;
  const auto part = [&](int64_t begin, int64_t count) {
    if (count == 0) return;
    gemm({.a = dy.narrow(1, begin, count).t(),
          .b = x,
          .out = out.narrow(0, begin, count),
          .adds = adds,
          .epilogue = sums.defined() ? Epilogue::sums_of_a : Epilogue::none,
          .vector = sums.defined() ? sums.narrow(0, begin, count) : sums});
  };
  part(0, packed);
  part(packed, dy.size(1) - packed);
}

/// Gradients of y = x matrix + bias. If wanted, the sums of dy's columns come with the weight's gradient.
Gradients gradients_of(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& dy, bool in_out,
                       bool wants_bias) {
  const bool adds = has_place(weight);
  const at::Tensor out = adds ? weight.grad() : at::empty(weight.sizes(), weight.options());
  const at::Tensor used = in_out ? dy : dy.narrow(1, 0, weight.size(0));  // without the copy's padding
  Gradients found{.weight = adds ? at::Tensor() : out, .bias = {}};
  if (wants_bias) found.bias = at::empty({used.size(1)}, weight.options());
  if (!in_out) {
    gemm_in_packs(used, x, out, adds, found.bias);
    return found;
  }
  gemm({.a = x.t(),
        .b = used,
        .out = out,
        .adds = adds,
        .epilogue = wants_bias ? Epilogue::sums_of_b : Epilogue::none,
        .vector = found.bias});
  return found;
}

/// y = x matrix + bias, with the gradients of weight and bias in the weight's type.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// x [rows, in]; weight and copy [out, in] or [in, out]. Only the copy is read; it may have more rows.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const Given& bias,
                            const at::Tensor& copy, const Given& bias_copy, bool in_out) {
    context->save_for_backward({x, weight, copy});
    context->saved_data["in_out"] = in_out;
    context->saved_data["has_bias"] = bias.has_value();
    return times(x, matrix_of(copy, in_out), bias_copy);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused dense layer has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &copy = saved[2], dy = gradients[0].contiguous();
    const bool in_out = context->saved_data["in_out"].toBool();
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = times(dy, matrix_of(copy, in_out).t(), {});
    const Gradients found = gradients_of(weight, x, dy, in_out, context->saved_data["has_bias"].toBool());
    return {dx, found.weight, found.bias, {}, {}, {}};
  }
};

/// Matrices [rows of each, in] that lie one after the other in one storage, as one matrix; else undefined.
at::Tensor neighbours(at::TensorList matrices) {
  int64_t rows = 0, end = matrices[0].storage_offset();
  for (const at::Tensor& matrix : matrices) {
    const bool is_next = matrix.is_contiguous() && matrix.is_alias_of(matrices[0]) && matrix.storage_offset() == end &&
                         matrix.scalar_type() == matrices[0].scalar_type();
    if (!is_next) return {};
    rows += matrix.size(0);
    end += matrix.numel();
  }
  const int64_t in = matrices[0].size(1);
  return matrices[0].as_strided({rows, in}, {in, 1});
}

/// Returns one matrix over the `.grad`s of neighbouring weights, if gradients can be added there; else undefined.
at::Tensor joined_place(const variable_list& weights) {
  std::vector<at::Tensor> places;
  for (const at::Tensor& weight : weights) {
    if (!has_place(weight)) return {};
    places.push_back(weight.grad());
  }
  return neighbours(places);
}

/// Several layers without bias on one x, as one product with their joined copies: y [rows, sum of their columns].
struct JoinedLinearFunction : torch::autograd::Function<JoinedLinearFunction> {
  /// x [rows, in]; weights [out of each, in]; copy [sum of out, in]. Only the copy is read.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights,
                            const at::Tensor& copy) {
    variable_list saved{x, copy};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    return times(x, copy.t(), {});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused dense layer has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &copy = saved[1], dy = gradients[0].contiguous();
    const variable_list weights(saved.begin() + 2, saved.end());
    variable_list results(weights.size() + 2);
    if (context->needs_input_grad(0)) results[0] = times(dy, copy, {});
    bool is_needed = false;
    for (size_t i = 0; i < weights.size(); ++i) is_needed = is_needed || context->needs_input_grad(1 + i);
    if (!is_needed) return results;
    const at::Tensor place = joined_place(weights);
    const at::Tensor out = place.defined() ? place : at::empty(copy.sizes(), weights[0].options());
    gemm_in_packs(dy, x, out, place.defined());
    int64_t begin = 0;
    for (size_t i = 0; !place.defined() && i < weights.size(); ++i) {
      results[1 + i] = out.narrow(0, begin, weights[i].size(0));
      begin += weights[i].size(0);
    }
    return results;
  }
};

/// y = gelu(x matrix 1 + bias 1) matrix 2 + bias 2.
struct FeedForwardFunction : torch::autograd::Function<FeedForwardFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight_1,
                            const Given& bias_1, const at::Tensor& weight_2, const Given& bias_2,
                            const at::Tensor& copy_1, const Given& bias_copy_1, const at::Tensor& copy_2,
                            const Given& bias_copy_2, bool in_out, bool by_tanh) {
    const auto [before, after] = activated_product(x, matrix_of(copy_1, in_out), bias_copy_1, gelu(by_tanh));
    context->save_for_backward({x, before, after, weight_1, weight_2, copy_1, copy_2});
    context->saved_data["in_out"] = in_out;
    context->saved_data["by_tanh"] = by_tanh;
    context->saved_data["has_bias_1"] = bias_1.has_value();
    context->saved_data["has_bias_2"] = bias_2.has_value();
    return times(after, matrix_of(copy_2, in_out), bias_copy_2);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused feed-forward layer has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &before = saved[1], &after = saved[2], dy = gradients[0].contiguous();
    const at::Tensor &weight_1 = saved[3], &weight_2 = saved[4], &copy_1 = saved[5], &copy_2 = saved[6];
    const auto flag = [context](const char* name) { return context->saved_data[name].toBool(); };
    const bool in_out = flag("in_out"), by_tanh = flag("by_tanh");
    const Gradients second = gradients_of(weight_2, after, dy, in_out, flag("has_bias_2"));
    const auto [dbefore, dbias] =
        activated_product_gradient(dy, matrix_of(copy_2, in_out).t(), before, gelu(by_tanh), flag("has_bias_1"));
    const Gradients first = gradients_of(weight_1, x, dbefore, in_out, /*wants_bias=*/false);
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = times(dbefore, matrix_of(copy_1, in_out).t(), {});
    return {dx, first.weight, dbias, second.weight, second.bias, {}, {}, {}, {}, {}, {}};
  }

 private:
  static ActivationKind gelu(bool by_tanh) { return by_tanh ? ActivationKind::gelu_tanh : ActivationKind::gelu; }
};

/// Returns tensors that are neighbouring columns of one contiguous tensor, as that tensor; else undefined.
at::Tensor side_by_side(const variable_list& parts) {
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  int64_t columns = 0;
  for (const at::Tensor& part : parts) {
    const bool is_next = part.is_alias_of(parts[0]) && part.strides() == parts[0].strides() &&
                         part.storage_offset() == parts[0].storage_offset() + columns;
    if (!is_next) return {};
    columns += part.size(-1);
  }
  sizes.back() = columns;
  const at::Tensor whole = parts[0].as_strided(sizes, parts[0].strides());
  return whole.is_contiguous() ? whole : at::Tensor();
}

struct Columns : torch::autograd::Function<Columns> {
  static variable_list forward(AutogradContext*, const at::Tensor& y, const std::vector<int64_t>& columns) {
    return at::unsafe_split_with_sizes(y, columns, -1);
  }

  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    const at::Tensor whole = side_by_side(gradients);
    return {whole.defined() ? whole : at::cat(gradients, -1), {}};
  }
};

bool has_aligned_rows(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0 && tensor.size(-1) % 8 == 0;
}

/// Returns whether matrix units accept these operands: 16 bits; addresses and rows are multiples of 16 bytes.
bool takes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& copy) {
  const bool is_16_bits = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  // Our functions compute a weight's gradient, which a frozen one in 16 bits needs not.
  const bool is_trained =
      weight.scalar_type() == at::kFloat || (weight.scalar_type() == at::kBFloat16 && weight.requires_grad());
  return is_16_bits && x.is_contiguous() && x.dim() > 1 && is_trained && copy.defined() &&
         copy.scalar_type() == x.scalar_type() && copy.is_contiguous() && has_aligned_rows(x) &&
         has_aligned_rows(copy) && copy.size(0) % 8 == 0;
}

Given given(const at::Tensor& tensor) { return tensor.defined() ? Given(tensor) : std::nullopt; }

at::Tensor rows_of(const at::Tensor& x) { return x.view({-1, x.size(-1)}); }

/// Returns rows in the shape of x, no view for autograd, which copies the gradients of a view that is overwritten.
at::Tensor shaped_as(const at::Tensor& rows, const at::Tensor& x) {
  if (x.dim() == 2) return rows;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return at::_unsafe_view(rows, sizes);
}

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl linear(const Tensors& inputs, bool in_out) {
  if (!is_here(inputs[0]) || !cuda::takes(inputs[0], inputs[1], inputs[3])) return {};
  return [in_out](const Tensors& t) {
    using namespace cuda;
    const at::Tensor y = LinearFunction::apply(rows_of(t[0]), t[1], given(t[2]), t[3], given(t[4]), in_out);
    return Tensors{shaped_as(y, t[0])};
  };
}

Tensors split_columns(const at::Tensor& y, const std::vector<int64_t>& columns) {
  return cuda::Columns::apply(y, columns);
}

OpImpl linear_each(const Tensors& inputs) {
  const size_t layers = (inputs.size() - 1) / 2;
  for (size_t i = 1; i <= layers; ++i) {
    if (!is_here(inputs[0]) || !cuda::takes(inputs[0], inputs[i], inputs[i + layers])) return {};
  }
  const auto weights = [layers](const Tensors& t) { return at::TensorList(t).slice(1, layers); };
  const auto copies = [layers](const Tensors& t) { return at::TensorList(t).slice(1 + layers, layers); };
  if (!cuda::neighbours(copies(inputs)).defined()) return {};
  // A comparison runs on clones, whose joining must not count in its times.
  struct Joined {
    Tensors clones;
    at::Tensor copy;
  };
  return [=, joined = std::make_shared<Joined>()](const Tensors& t) {
    using namespace cuda;
    at::Tensor copy = neighbours(copies(t));
    if (!copy.defined()) {
      const bool is_known =
          std::ranges::equal(joined->clones, copies(t), [](const auto& a, const auto& b) { return a.is_same(b); });
      if (!is_known) *joined = {.clones = copies(t).vec(), .copy = at::cat(copies(t))};
      copy = joined->copy;
    }
    const at::Tensor y = shaped_as(JoinedLinearFunction::apply(rows_of(t[0]), weights(t), copy), t[0]);
    std::vector<int64_t> columns;
    for (const at::Tensor& weight : weights(t)) columns.push_back(weight.size(0));
    return gpu::split_columns(y, columns);
  };
}

OpImpl feed_forward(const Tensors& inputs, bool in_out, Activation activation) {
  if (activation != Activation::gelu && activation != Activation::gelu_tanh) return {};
  if (!is_here(inputs[0]) || !cuda::takes(inputs[0], inputs[1], inputs[5])) return {};
  if (!cuda::takes(inputs[0], inputs[3], inputs[7])) return {};
  return [in_out, by_tanh = activation == Activation::gelu_tanh](const Tensors& t) {
    using namespace cuda;
    const at::Tensor y = FeedForwardFunction::apply(rows_of(t[0]), t[1], given(t[2]), t[3], given(t[4]), t[5],
                                                    given(t[6]), t[7], given(t[8]), in_out, by_tanh);
    return Tensors{shaped_as(y, t[0])};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
