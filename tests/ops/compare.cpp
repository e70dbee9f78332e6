#include "ops/compare.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>

#include "gputrain/core/random.hpp"

namespace gputrain::testing_support {

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const auto norm = [](const at::Tensor& x) {
    return at::linalg_vector_norm(x.detach().to(at::kDouble)).item<double>();
  };
  const double difference = norm(at::sub(a.detach().to(at::kDouble), b.detach().to(at::kDouble)));
  return difference == 0 ? 0 : difference / norm(b);
}

at::Tensor random_leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  at::Tensor values = at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
  RandomStream random(seed, 0);
  auto* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
  }
  return values.to(type).set_requires_grad(true);
}

double gradient_error(const std::function<at::Tensor()>& function, const std::vector<at::Tensor>& leaves) {
  constexpr double kStep = 1e-5;
  for (const at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
  function().backward();
  double worst = 0, largest = 1e-12;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor gradient = leaf.grad().contiguous();
    auto* value = leaf.mutable_data_ptr<double>();
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      const double kept = value[i];
      value[i] = kept + kStep;
      const double above = function().item<double>();
      value[i] = kept - kStep;
      const double below = function().item<double>();
      value[i] = kept;
      const double expected = (above - below) / (2 * kStep);
      worst = std::max(worst, std::abs(gradient.const_data_ptr<double>()[i] - expected));
      largest = std::max(largest, std::abs(expected));
    }
  }
  return worst / largest;
}

}  // namespace gputrain::testing_support
