#include "../../../src/ops/cuda/kernels/norm.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

constexpr float kNormEps = 1e-5F;

struct NormCase {
  int64_t rows, width;
  bool centred = true, with_residual = true, with_shift = true;
  unsigned threshold = 0;
  int parts = 3;
  int64_t offset = 0;  // misaligns tensors by this many elements
};

struct NormTensors {
  at::Tensor x, residual, scale, shift, z, y, mean, rstd;  // forward
  at::Tensor dy, passed, dz, dx, sums;                     // backward; sums [2, width]
  std::vector<at::Tensor> results() const { return {z, y, mean, rstd, dz, dx, sums}; }
};

/// A tensor that starts `offset` elements after a multiple of 16 bytes.
at::Tensor shifted(const at::Tensor& tensor, int64_t offset) {
  at::Tensor flat = poisoned({tensor.numel() + offset}, tensor.scalar_type());
  at::Tensor view = flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
  return view.copy_(tensor);
}

Dropout dropout_of(const NormCase& c) { return {.threshold = c.threshold, .seed = 42, .offset = 9}; }

void run_forward(const NormCase& c, const Storage& storage, NormTensors& t) {
  norm_forward({.element = storage.element,
                .rows = c.rows,
                .width = c.width,
                .centred = c.centred,
                .eps = kNormEps,
                .dropout = dropout_of(c),
                .x = pointer(t.x),
                .residual = pointer(t.residual),
                .scale = pointer<float>(t.scale),
                .shift = pointer<float>(t.shift),
                .z = pointer(t.z),
                .y = pointer(t.y),
                .mean = pointer<float>(t.mean),
                .rstd = pointer<float>(t.rstd)},
               nullptr);
}

void run_backward(const NormCase& c, const Storage& storage, NormTensors& t) {
  const at::Tensor partials = poisoned({c.parts, 2 * c.width}, at::kFloat);
  norm_backward({.element = storage.element,
                 .rows = c.rows,
                 .width = c.width,
                 .centred = c.centred,
                 .dropout = dropout_of(c),
                 .dy = pointer(t.dy),
                 .passed = pointer(t.passed),
                 .z = pointer(t.z.defined() ? t.z : t.x),
                 .scale = pointer<float>(t.scale),
                 .mean = pointer<float>(t.mean),
                 .rstd = pointer<float>(t.rstd),
                 .dz = pointer(t.dz),
                 .dx = pointer(t.dx),
                 .partials = pointer<float>(partials),
                 .parts = c.parts},
                nullptr);
  float* sums = pointer<float>(t.sums);
  column_sums({pointer<float>(partials), {{sums}, {sums + c.width}}, c.parts, c.width}, nullptr);
}

NormTensors run(const NormCase& c, const Storage& storage) {
  const std::vector<int64_t> shape{c.rows, c.width};
  const auto input = [&](uint64_t seed) { return shifted(noise(shape, seed, storage.type), c.offset); };
  const auto output = [&] { return shifted(poisoned(shape, storage.type), c.offset); };
  NormTensors t{.x = input(1), .scale = noise({c.width}, 2, at::kFloat), .y = output(), .dy = input(5), .dz = output()};
  if (c.centred) t.x.add_(3);  // mean larger than the standard deviation
  if (c.with_residual) t.residual = input(3);
  if (c.with_residual) t.passed = input(6);
  if (c.with_residual || c.threshold > 0) t.z = output();
  if (c.with_shift) t.shift = noise({c.width}, 4, at::kFloat);
  if (c.centred) t.mean = poisoned({c.rows}, at::kFloat);
  t.rstd = poisoned({c.rows}, at::kFloat);
  if (c.threshold > 0) t.dx = output();
  t.sums = poisoned({2, c.width}, at::kFloat);
  run_forward(c, storage, t);
  run_backward(c, storage, t);
  return t;
}

/// The factors of dropout: its result for ones.
at::Tensor mask_of(const NormCase& c) {
  const at::Tensor ones = at::ones({c.rows, c.width}, at::kDouble);
  if (c.threshold == 0) return ones;
  NormTensors t{.x = ones.to(at::kFloat), .scale = at::ones({c.width}, at::kFloat)};
  t.z = poisoned({c.rows, c.width}, at::kFloat);
  t.y = poisoned({c.rows, c.width}, at::kFloat);
  t.mean = poisoned({c.rows}, at::kFloat);
  t.rstd = poisoned({c.rows}, at::kFloat);
  run_forward(c, storages()[0], t);
  return wide(t.z);
}

void compare(const NormCase& c, const NormTensors& t, const std::string& place) {
  const at::Tensor mask = mask_of(c);
  at::Tensor z = wide(t.x) * mask;
  if (c.with_residual) z = z + wide(t.residual);
  if (t.z.defined()) expect_close(t.z, z, place + " z");
  // From the stored z: the rounding of z is tested above.
  const at::Tensor leaf = wide_leaf(t.z.defined() ? t.z : t.x), scale = wide_leaf(t.scale);
  const at::Tensor shift = c.with_shift ? wide_leaf(t.shift) : at::Tensor();
  at::Tensor y = c.centred ? at::layer_norm(leaf, {c.width}, scale, shift, kNormEps)
                           : at::rms_norm(leaf, {c.width}, scale, kNormEps);
  if (!c.centred && c.with_shift) y = y + shift;
  expect_close(t.y, y, place + " y");
  at::Tensor objective = (y * wide(t.dy)).sum();
  if (t.passed.defined()) objective = objective + (leaf * wide(t.passed)).sum();
  objective.backward();
  const at::Tensor dx = leaf.grad() * mask;
  expect_close(t.dz, leaf.grad(), place + " dz", 1e-2);
  if (t.dx.defined()) expect_close(t.dx, dx, place + " dx", 1e-2);
  expect_close(t.sums[0], scale.grad(), place + " gradient of the scale");
  expect_close(t.sums[1], wide(t.dy).sum(0), place + " gradient of the shift");
}

void check(const NormCase& c) {
  for (const Storage& storage : storages()) {
    const NormTensors t = run(c, storage);
    compare(c, t, std::string(storage.name) + " " + std::to_string(c.rows) + " x " + std::to_string(c.width));
    expect_same_bits(t.results(), run(c, storage).results());
  }
}

TEST(NormKernels, MatchLayerNormOfASumWithGradients) {
  check({.rows = 1, .width = 8});
  check({.rows = 19, .width = 64});
  check({.rows = 13, .width = 768, .parts = 2});
  check({.rows = 4, .width = 1600, .parts = 2});
  check({.rows = 2, .width = 4096, .parts = 1});
}

TEST(NormKernels, HandleWidthsThatFillNoWholePacks) {
  check({.rows = 7, .width = 3});
  check({.rows = 3, .width = 771, .parts = 2});
  check({.rows = 2, .width = 768, .parts = 2, .offset = 1});
}

TEST(NormKernels, WorkWithoutResidualAndShift) {
  check({.rows = 10, .width = 96, .with_residual = false});
  check({.rows = 10, .width = 96, .with_residual = false, .with_shift = false});
}

TEST(NormKernels, MatchRmsNormWithGradients) {
  check({.rows = 9, .width = 768, .centred = false, .with_shift = false});
  check({.rows = 4, .width = 2048, .centred = false, .with_residual = false, .with_shift = false});
}

TEST(NormKernels, RepeatDropoutInBackward) {
  check({.rows = 11, .width = 256, .threshold = 6554});
  check({.rows = 6, .width = 77, .threshold = 32768});
}

TEST(NormKernels, DropTheAskedShareForAnyPacking) {
  const NormCase c{.rows = 32, .width = 768, .with_residual = false, .threshold = 6554};
  NormCase odd = c;
  odd.offset = 1;
  const at::Tensor packed = run(c, storages()[0]).z, single = run(odd, storages()[0]).z;
  EXPECT_TRUE(packed.equal(single));
  const double kept = at::ne(packed, 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.9, 4 * std::sqrt(0.09 / (32 * 768)));
}

TEST(NormKernels, ReportSupportedWidths) {
  EXPECT_TRUE(takes_norm_width(6144));
  EXPECT_FALSE(takes_norm_width(6145));
  check({.rows = 1, .width = 6144, .parts = 1});
  check({.rows = 1, .width = 6143, .parts = 1});
}

}  // namespace
}  // namespace gputrain::ops::cuda
