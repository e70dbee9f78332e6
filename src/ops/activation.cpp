#include "gputrain/ops/activation.hpp"

#include <array>
#include <utility>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include "cpu/fused.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::ops {
namespace {

constexpr std::array<std::string_view, 5> kActivationNames{"relu", "gelu", "gelu_tanh", "silu", "tanh"};

}  // namespace

std::vector<std::string> activation_names() { return {kActivationNames.begin(), kActivationNames.end()}; }

Activation activation_from_name(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < kActivationNames.size(); ++i) {
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
    known += (known.empty() ? "" : ", ") + std::string(kActivationNames[i]);
  }
  throw Error(ExitCode::usage, {.what = "unknown activation '" + std::string(name) + "'", .hint = "one of " + known});
}

bool overwrites_input(Activation activation) noexcept {
  return activation == Activation::relu || activation == Activation::tanh;
}

at::Tensor activate(at::Tensor x, Activation activation) {
  switch (activation) {
    case Activation::relu:
      return at::relu_(x);
    case Activation::tanh:
      return at::tanh_(x);
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return cpu::is_fusible(x) ? cpu::gelu_tanh(x) : at::gelu(x, "tanh");
    case Activation::silu:
      return at::silu(x);
  }
  GPUTRAIN_ASSERT(false, "an activation without a branch");
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::mul(at::silu(gate), up); }

at::Tensor dropout(const at::Tensor& x, double probability) { return at::dropout(x, probability, /*train=*/true); }

at::Tensor max_pool2d(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  return at::max_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding});
}

at::Tensor global_max_pool(const at::Tensor& x) { return at::max_pool2d(x, {x.size(2), x.size(3)}).flatten(1); }

at::Tensor global_average_pool(const at::Tensor& x) { return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1); }

}  // namespace gputrain::ops
