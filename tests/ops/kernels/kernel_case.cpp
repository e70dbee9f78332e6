#include "ops/kernels/kernel_case.hpp"

#include <cmath>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>
#include <gtest/gtest.h>

#include "gputrain/core/random.hpp"

namespace gputrain::testing_support {

const std::vector<Storage>& storages() {
#if defined(__SANITIZE_THREAD__)
  static const std::vector<Storage> list{{"fp32", at::kFloat, ops::cuda::Element::fp32}};
#else
  static const std::vector<Storage> list{{"fp32", at::kFloat, ops::cuda::Element::fp32},
                                         {"bf16", at::kBFloat16, ops::cuda::Element::bf16},
                                         {"fp16", at::kHalf, ops::cuda::Element::fp16}};
#endif
  return list;
}

at::Tensor noise(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  const at::Tensor values = at::empty(sizes, at::kFloat);
  RandomStream random(seed, 0);
  auto* data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    data[i] = static_cast<float>(radius * std::cos(6.283185307179586 * random.uniform()));
  }
  return values.to(at::TensorOptions().dtype(type).device(kernel_device()));
}

at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType type) {
  if (at::isFloatingType(type)) return at::full(sizes, std::nan(""), at::device(kernel_device()).dtype(type));
  return at::full(sizes, 77, at::device(kernel_device()).dtype(type));
}

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true); }
at::Tensor wide_leaf(const at::Tensor& tensor) { return wide(tensor).set_requires_grad(true); }

namespace {

double norm_of(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor.detach().to(at::kDouble)).item<double>();
}

void expect_relative(double bound, const at::Tensor& ours, const at::Tensor& expected, double floor,
                     const std::string& what) {
  ASSERT_EQ(ours.sizes(), expected.sizes()) << what;
  ASSERT_TRUE(at::isfinite(ours).all().item<bool>()) << what << " has elements that were not written";
  const double difference = norm_of(at::sub(ours.to(at::kDouble), expected.detach()));
  EXPECT_LE(difference, bound * (norm_of(expected) + floor)) << what << ", of " << norm_of(expected);
}

}  // namespace

void expect_close(const at::Tensor& ours, const at::Tensor& expected, const std::string& what, double floor) {
  expect_relative(ours.element_size() == 2 ? 3e-3 : 1e-5, ours, expected, floor, what);
}

void expect_within(double bound, const at::Tensor& ours, const at::Tensor& expected, const std::string& what) {
  expect_relative(bound, ours, expected, 0, what);
}

void expect_same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    if (!one[i].defined()) continue;
    ASSERT_EQ(one[i].nbytes(), other[i].nbytes());
    EXPECT_EQ(std::memcmp(one[i].const_data_ptr(), other[i].const_data_ptr(), one[i].nbytes()), 0) << "output " << i;
  }
}

}  // namespace gputrain::testing_support
