#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "../../dispatch/kernel_autotuner.hpp"
#include "../cublas/gemm.hpp"
#include "../cudnn/gelu_product.hpp"
#include "activated_product.hpp"
#include "apply_activation.hpp"
#include "gputrain/core/log.hpp"
#include "launching.hpp"

namespace gputrain::ops::cuda {
namespace {

/// Names a product of a layer, whatever its number of rows.
std::string layer_of(const char* what, const at::Tensor& rows, const at::Tensor& matrix, ActivationKind kind) {
  return fmt::format("{} {} by cudnn {}x{}{} {}", what, kind == ActivationKind::gelu_tanh ? "gelu_tanh" : "gelu",
                     matrix.size(0), matrix.size(1), matrix.stride(1) == 1 ? "" : " transposed",
                     at::toString(rows.scalar_type()));
}

/// Returns whether to try cuDNN on one more number of rows: each needs a plan, which takes seconds to build. Jobs whose
/// batches have many sizes take the other way for most of them.
bool may_try_another(const std::string& layer) {
  constexpr int kMost = 4;
  static std::mutex mutex;
  static std::map<std::string, int> tried;
  const std::lock_guard lock(mutex);
  return ++tried[layer] <= kMost;
}

/// Computes by cuDNN if that is faster, else in two kernels.
void run_fastest(const std::string& layer, int64_t rows, const std::function<void()>& in_two,
                 const std::function<void()>& by_cudnn) {
  auto& tuner = kernel_autotuner();
  if (tuner.chooses_roughly()) return in_two();
  const std::string name = fmt::format("{} {} rows", layer, rows);
  const auto attempt = [&](size_t way) { way == 0 ? in_two() : by_cudnn(); };
  try {
    if (tuner.fastest(name, 2, attempt, [&] { return may_try_another(layer); }) == 1) return by_cudnn();
  } catch (const NoKernel& reason) {
    log::warning(fmt::format("{}: two kernels compute it, as cuDNN has none for it: {}", name, reason.what()));
    tuner.settle(name, 0);
  }
  in_two();
}

}  // namespace

Activated activated_product(const at::Tensor& x, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                            ActivationKind kind) {
  Activated y{.before = at::empty({x.size(0), matrix.size(1)}, x.options()), .after = {}};
  if (kind == ActivationKind::gelu_tanh && bias) {
    y.after = at::empty_like(y.before);
    gemm({.a = x, .b = matrix, .out = y.after, .epilogue = Epilogue::bias_gelu_tanh, .vector = *bias, .aux = y.before});
    return y;
  }
  const auto in_two = [&] {
    gemm({.a = x,
          .b = matrix,
          .out = y.before,
          .epilogue = bias ? Epilogue::bias : Epilogue::none,
          .vector = bias.value_or(at::Tensor())});
    y.after = apply_activation(y.before, kind);
  };
  const auto by_cudnn = [&] {
    y.after = at::empty_like(y.before);
    gelu_product(x, matrix, *bias, kind, y.before, y.after);
  };
  if (bias) {
    run_fastest(layer_of("product and", x, matrix, kind), x.size(0), in_two, by_cudnn);
  } else {
    in_two();
  }
  return y;
}

// cuBLASLt has an epilogue for the gradient of GELU by tanh with the sums. It took 0.60 ms on an H100, where the
// product alone took 0.13 ms (32768 x 768 x 3072).
ActivatedGradient activated_product_gradient(const at::Tensor& dy, const at::Tensor& matrix, const at::Tensor& before,
                                             ActivationKind kind, bool wants_bias) {
  ActivatedGradient found{.before = at::empty_like(before), .bias = {}};
  const auto in_two = [&] {
    gemm({.a = dy, .b = matrix, .out = found.before});  // holds the gradient of `after` until the next line
    found.bias = to_activation_gradient(before, found.before, kind, wants_bias);
  };
  const auto by_cudnn = [&] {
    found.bias = wants_bias ? at::empty({before.size(1)}, before.options().dtype(at::kFloat)) : at::Tensor();
    gelu_gradient_product(dy, matrix, before, kind, found.before, found.bias);
  };
  const char* const what = wants_bias ? "product, sums and gradient of" : "product and gradient of";
  run_fastest(layer_of(what, dy, matrix, kind), dy.size(0), in_two, by_cudnn);
  return found;
}

}  // namespace gputrain::ops::cuda
