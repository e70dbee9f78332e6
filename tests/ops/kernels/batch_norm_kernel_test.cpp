#include "../../../src/ops/cuda/kernels/batch_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

struct BatchCase {
  int64_t rows, channels;
  bool relu = true, with_residual = false;
  int parts = 3;
  double mean = 0;  // of x, whose standard deviation is 1
};

constexpr float kBatchEps = 1e-5F, kBatchMomentum = 0.1F;

struct BatchTensors {
  at::Tensor x, residual, weight, bias, dy;
  at::Tensor mean, rstd, scale, shift, running_mean, running_var, y, passed;
  at::Tensor dweight, dbias, slope, offset, dx, dresidual;
  std::vector<at::Tensor> results() const {
    return {mean, rstd, running_mean, running_var, y, dweight, dbias, dx, dresidual};
  }
};

BatchTensors tensors_of(const BatchCase& c, const Storage& storage) {
  const std::vector<int64_t> shape{c.rows, c.channels};
  BatchTensors t{.x = (noise(shape, 1, at::kFloat) + c.mean).to(storage.type),
                 .weight = noise({c.channels}, 2, at::kFloat),
                 .bias = noise({c.channels}, 3, at::kFloat),
                 .dy = noise(shape, 4, storage.type)};
  if (c.with_residual) t.residual = noise(shape, 5, storage.type);
  if (c.with_residual) t.dresidual = poisoned(shape, storage.type);
  for (at::Tensor* tensor : {&t.mean, &t.rstd, &t.scale, &t.shift, &t.dweight, &t.dbias, &t.slope, &t.offset}) {
    *tensor = poisoned({c.channels}, at::kFloat);
  }
  t.running_mean = at::zeros({c.channels}, at::kFloat);
  t.running_var = at::ones({c.channels}, at::kFloat);
  t.y = poisoned(shape, storage.type);
  t.dx = poisoned(shape, storage.type);
  return t;
}

BatchTensors run(const BatchCase& c, const Storage& storage) {
  BatchTensors t = tensors_of(c, storage);
  const ImageRows images{.element = storage.element, .rows = c.rows, .channels = c.channels, .parts = c.parts};
  const at::Tensor partials = poisoned({c.parts, 3, c.channels}, at::kFloat);
  batch_statistics(images, pointer(t.x), pointer<float>(partials), nullptr);
  batch_moments(images,
                {.partials = pointer<float>(partials),
                 .weight = pointer<float>(t.weight),
                 .bias = pointer<float>(t.bias),
                 .eps = kBatchEps,
                 .momentum = kBatchMomentum,
                 .mean = pointer<float>(t.mean),
                 .rstd = pointer<float>(t.rstd),
                 .scale = pointer<float>(t.scale),
                 .shift = pointer<float>(t.shift),
                 .running_mean = pointer<float>(t.running_mean),
                 .running_var = pointer<float>(t.running_var)},
                nullptr);
  BatchApply apply{.x = pointer(t.x),
                   .residual = pointer(t.residual),
                   .scale = pointer<float>(t.scale),
                   .shift = pointer<float>(t.shift),
                   .relu = c.relu,
                   .y = pointer(t.y),
                   .passed = nullptr};
  const int64_t bytes = c.with_residual && c.relu ? passed_bytes(images, apply) : 0;
  if (bytes > 0) {
    t.passed = at::full({bytes}, 0xA5, at::kByte);
    apply.passed = pointer<uint8_t>(t.passed);
  }
  batch_apply(images, apply, nullptr);
  const at::Tensor sums = poisoned({c.parts, 2, c.channels}, at::kFloat);
  batch_gradient(images,
                 {.dy = pointer(t.dy),
                  .x = pointer(t.x),
                  .y = c.with_residual && bytes == 0 ? pointer(t.y) : nullptr,
                  .passed = apply.passed,
                  .mean = pointer<float>(t.mean),
                  .rstd = pointer<float>(t.rstd),
                  .scale = pointer<float>(t.scale),
                  .shift = pointer<float>(t.shift),
                  .relu = c.relu,
                  .partials = pointer<float>(sums),
                  .dweight = pointer<float>(t.dweight),
                  .dbias = pointer<float>(t.dbias),
                  .slope = pointer<float>(t.slope),
                  .offset = pointer<float>(t.offset),
                  .dx = pointer(t.dx),
                  .dresidual = pointer(t.dresidual)},
                 nullptr);
  return t;
}

struct Expected {
  at::Tensor y, dx, dweight, dbias, dresidual, running_mean, running_var;
};

/// Expected values in double. The ReLU passes gradients where our y is above 0, because y's rounding is tested
/// separately.
Expected expected_of(const BatchCase& c, const BatchTensors& t) {
  const at::Tensor x = wide_leaf(t.x), weight = wide_leaf(t.weight), bias = wide_leaf(t.bias);
  Expected e{.running_mean = at::zeros({c.channels}, at::kDouble), .running_var = at::ones({c.channels}, at::kDouble)};
  const double momentum = kBatchMomentum, eps = kBatchEps;
  at::Tensor y =
      std::get<0>(at::native_batch_norm(x, weight, bias, e.running_mean, e.running_var, true, momentum, eps));
  if (c.with_residual) y = y + wide(t.residual);
  e.y = c.relu ? at::relu(y) : y;
  e.dresidual = c.relu ? wide(t.dy) * wide(t.y).gt(0) : wide(t.dy);
  (y * e.dresidual).sum().backward();
  e.dx = x.grad();
  e.dweight = weight.grad();
  e.dbias = bias.grad();
  return e;
}

void check(const BatchCase& c) {
  for (const Storage& storage : storages()) {
    const std::string place =
        std::string(storage.name) + " " + std::to_string(c.rows) + " x " + std::to_string(c.channels);
    const BatchTensors t = run(c, storage);
    const Expected e = expected_of(c, t);
    expect_close(t.y, e.y, place + " y");
    expect_close(t.running_mean, e.running_mean, place + " running mean");
    expect_close(t.running_var, e.running_var, place + " running variance");
    expect_close(t.dx, e.dx, place + " dx", 1e-2);
    expect_close(t.dweight, e.dweight, place + " dweight", 1e-2);
    expect_close(t.dbias, e.dbias, place + " dbias", 1e-2);
    if (c.with_residual) expect_close(t.dresidual, e.dresidual, place + " dresidual");
    expect_same_bits(t.results(), run(c, storage).results());
  }
}

TEST(BatchNormKernels, MatchReferenceWithGradients) {
  check({.rows = 150, .channels = 64});
  check({.rows = 49, .channels = 16, .relu = false});
  check({.rows = 33, .channels = 512, .parts = 2});
}

TEST(BatchNormKernels, AddTheResidual) {
  check({.rows = 70, .channels = 32, .with_residual = true});
  check({.rows = 33, .channels = 520, .with_residual = true, .parts = 2});
  check({.rows = 49, .channels = 16, .relu = false, .with_residual = true});
}

/// A bit for each result of the ReLU, in whole packs of 16 bytes, however the gradient then reads them.
TEST(BatchNormKernels, KeepWhereTheReluLetThrough) {
  for (const Storage& storage : storages()) {
    const BatchTensors t = run({.rows = 70, .channels = 32, .with_residual = true}, storage);
    const int64_t pack = 16 / t.y.element_size();
    const at::Tensor bits = t.passed.view({-1, 1}).bitwise_right_shift(at::arange(pack, at::kByte)).bitwise_and(1);
    EXPECT_TRUE(bits.view({70, 32}).to(at::kBool).equal(t.y.gt(0))) << storage.name;
    EXPECT_FALSE(run({.rows = 9, .channels = 77, .with_residual = true}, storage).passed.defined());
  }
}

TEST(BatchNormKernels, HandleCountsThatFillNoWholePacks) {
  check({.rows = 11, .channels = 3, .parts = 5});
  check({.rows = 9, .channels = 77, .with_residual = true, .parts = 4});
}

TEST(BatchNormKernels, KeepDigitsFarFromZero) {
  const BatchCase c{.rows = 3000, .channels = 8, .relu = false, .mean = 1000};
  const BatchTensors t = run(c, storages()[0]);
  const at::Tensor deviation = wide(t.x).var({0}, /*unbiased=*/false).add(kBatchEps).sqrt();
  expect_within(1e-5, t.rstd, deviation.reciprocal(), "rstd");
}

TEST(BatchNormKernels, KeepVarianceFiniteForOneValue) {
  const BatchTensors t = run({.rows = 1, .channels = 8, .parts = 1}, storages()[0]);
  expect_within(1e-6, t.running_var, at::full({8}, 1 - kBatchMomentum, at::kDouble), "running variance");
  expect_within(1e-4, t.y, at::relu(wide(t.bias)).unsqueeze(0), "y");
}

}  // namespace
}  // namespace gputrain::ops::cuda
