#include "gputrain/ops/activation.hpp"

#include <array>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include "cpu/fused.hpp"
#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::ops {
namespace {

constexpr std::array<std::string_view, 6> kActivationNames{"relu", "gelu", "gelu_tanh", "silu", "tanh", "hardswish"};

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

namespace {

at::Tensor aten_activate(at::Tensor x, Activation activation) {
  switch (activation) {
    case Activation::relu:
      return at::relu_(x);
    case Activation::tanh:
      return at::tanh_(x);
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::silu:
      return at::silu(x);
    case Activation::hardswish:
      return at::hardswish(x);
  }
  GPUTRAIN_ASSERT(false, "an activation without a branch");
}

}  // namespace

at::Tensor activate(at::Tensor x, Activation activation) {
  if (gpu::is_here(x) && !overwrites_input(activation)) {
    const OpImpl reference = [activation](const Tensors& t) { return Tensors{aten_activate(t[0], activation)}; };
    return run(kActivationNames[static_cast<size_t>(activation)], {x}, {}, gpu::activation(x, activation),
               reference)[0];
  }
  if (activation == Activation::gelu_tanh && cpu::is_fusible(x)) return cpu::gelu_tanh(x);
  return aten_activate(x, activation);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const OpImpl reference = [](const Tensors& t) { return Tensors{at::mul(at::silu(t[0]), t[1])}; };
  if (!gpu::is_here(gate)) return reference({gate, up})[0];
  return run("swiglu", {gate, up}, {.batched = 2, .differentiable = 2}, gpu::swiglu(gate, up), reference)[0];
}

at::Tensor dropout(const at::Tensor& x, double probability) { return at::dropout(x, probability, /*train=*/true); }

at::Tensor max_pool2d(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  const OpImpl reference = [=](const Tensors& t) {
    return Tensors{at::max_pool2d(t[0], {kernel, kernel}, {stride, stride}, {padding, padding})};
  };
  if (!gpu::is_here(x)) return reference({x})[0];
  return run("max_pool", {x}, {}, gpu::max_pool(x, kernel, stride, padding), reference)[0];
}

at::Tensor global_max_pool(const at::Tensor& x) { return at::max_pool2d(x, {x.size(2), x.size(3)}).flatten(1); }

at::Tensor global_average_pool(const at::Tensor& x) { return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1); }

}  // namespace gputrain::ops
