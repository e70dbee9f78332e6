#include "../../../src/ops/cuda/kernels/activation.hpp"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

at::Tensor reference(ActivationKind kind, const at::Tensor& x) {
  return kind == ActivationKind::silu ? at::silu(x) : at::gelu(x, kind == ActivationKind::gelu ? "none" : "tanh");
}

struct ActivationTensors {
  at::Tensor x, y, dy, dx, partials;
  std::vector<at::Tensor> results() const { return {y, dx, partials}; }
};

ActivationTensors run(ActivationKind kind, int64_t rows, int64_t width, const Storage& storage) {
  constexpr int kParts = 2;
  ActivationTensors t{.x = noise({rows, width}, 1, at::kFloat).mul(2).to(storage.type),
                      .y = poisoned({rows, width}, storage.type),
                      .dy = noise({rows, width}, 2, storage.type),
                      .dx = poisoned({rows, width}, storage.type),
                      .partials = poisoned({kParts, width}, at::kFloat)};
  const ActivationRows p{.element = storage.element,
                         .kind = kind,
                         .rows = rows,
                         .width = width,
                         .x = pointer(t.x),
                         .y = pointer(t.y),
                         .dy = pointer(t.dy),
                         .dx = pointer(t.dx),
                         .parts = kParts,
                         .partials = pointer<float>(t.partials)};
  activation_forward(p, nullptr);
  activation_backward(p, nullptr);
  return t;
}

void check(ActivationKind kind, int64_t rows, int64_t width) {
  for (const Storage& storage : storages()) {
    const std::string place = std::string(storage.name) + " " + std::to_string(width);
    const ActivationTensors t = run(kind, rows, width, storage);
    const at::Tensor leaf = wide_leaf(t.x);
    const at::Tensor y = reference(kind, leaf);
    (y * wide(t.dy)).sum().backward();
    expect_close(t.y, y, place + " y");
    expect_close(t.dx, leaf.grad(), place + " dx");
    expect_close(t.partials.sum(0), leaf.grad().sum(0), place + " sums of dx");
    expect_same_bits(t.results(), run(kind, rows, width, storage).results());
  }
}

TEST(CurveKernels, MatchReferenceWithGradients) {
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu}) {
    check(kind, 40, 96);
    check(kind, 21, 7);
    check(kind, 1, 1);
    check(kind, 3, 640);
  }
}

TEST(CurveKernels, HandleLargeNumbers) {
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu}) {
    const at::Tensor x = at::cat({noise({4, 8}, 1, at::kFloat).mul(1e4), noise({4, 8}, 2, at::kFloat).mul(100)});
    const at::Tensor y = poisoned({8, 8}, at::kFloat), dy = noise({8, 8}, 3, at::kFloat),
                     dx = poisoned({8, 8}, at::kFloat);
    const ActivationRows p{.element = Element::fp32,
                           .kind = kind,
                           .rows = 8,
                           .width = 8,
                           .x = pointer(x),
                           .y = pointer(y),
                           .dy = pointer(dy),
                           .dx = pointer(dx),
                           .parts = 1};
    activation_forward(p, nullptr);
    activation_backward(p, nullptr);
    const at::Tensor leaf = wide_leaf(x);
    (reference(kind, leaf) * wide(dy)).sum().backward();
    expect_close(y, reference(kind, leaf), "y");
    expect_close(dx, leaf.grad(), "dx");
  }
}

struct GatedTensors {
  at::Tensor joined, y, dy, dgate, dup;  // dgate and dup: of one tensor, too
  std::vector<at::Tensor> results() const { return {y, dgate, dup}; }
};

GatedTensors run_gated(int64_t rows, int64_t width, const Storage& storage) {
  const at::Tensor gradients = poisoned({rows, 2 * width}, storage.type);
  GatedTensors t{.joined = noise({rows, 2 * width}, 1, storage.type),
                 .y = poisoned({rows, width}, storage.type),
                 .dy = noise({rows, width}, 2, storage.type),
                 .dgate = gradients.narrow(1, 0, width),
                 .dup = gradients.narrow(1, width, width)};
  const GatedRows p{.element = storage.element,
                    .rows = rows,
                    .width = width,
                    .stride = 2 * width,
                    .gradient_stride = 2 * width,
                    .gate = pointer(t.joined),
                    .up = pointer(t.joined.narrow(1, width, width)),
                    .y = pointer(t.y),
                    .dy = pointer(t.dy),
                    .dgate = pointer(t.dgate),
                    .dup = pointer(t.dup),
                    .parts = 2};
  gated_forward(p, nullptr);
  gated_backward(p, nullptr);
  return t;
}

TEST(GatedKernels, MatchReferenceOnHalvesOfOneTensor) {
  for (const Storage& storage : storages()) {
    for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {37, 96}, {5, 11}}) {
      const GatedTensors t = run_gated(rows, width, storage);
      const at::Tensor leaf = wide_leaf(t.joined);
      const at::Tensor y = at::silu(leaf.narrow(1, 0, width)) * leaf.narrow(1, width, width);
      (y * wide(t.dy)).sum().backward();
      expect_close(t.y, y, storage.name);
      expect_close(t.dgate, leaf.grad().narrow(1, 0, width), storage.name);
      expect_close(t.dup, leaf.grad().narrow(1, width, width), storage.name);
      expect_same_bits(t.results(), run_gated(rows, width, storage).results());
    }
  }
}

/// x [batch, heads, time, channels], a view of the layout [batch, time, heads, channels] in which attention computes
/// its heads.
at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, float direction,
                  Element element) {
  const auto laid_out = [&](const at::Tensor& tensor) { return tensor.transpose(1, 2); };
  const at::Tensor y = laid_out(poisoned({x.size(0), x.size(2), x.size(1), x.size(3)}, x.scalar_type()));
  const auto strides = [](const at::Tensor& t) { return Rotation::Strides{t.stride(0), t.stride(1), t.stride(2)}; };
  rotate({.element = element,
          .batch = x.size(0),
          .heads = x.size(1),
          .time = x.size(2),
          .half = x.size(3) / 2,
          .x_strides = strides(x),
          .y_strides = strides(y),
          .direction = direction,
          .x = pointer(x),
          .cosine = pointer<float>(cosine),
          .sine = pointer<float>(sine),
          .tables_of_rows = cosine.dim() == 4,
          .y = pointer(y)},
         nullptr);
  return y;
}

TEST(RotateKernel, MatchesReferenceAndTurnsBack) {
  for (const Storage& storage : storages()) {
    for (const auto& shape : std::vector<std::array<int64_t, 4>>{{2, 3, 19, 64}, {1, 1, 1, 2}, {1, 2, 7, 6}}) {
      const auto [batch, heads, time, channels] = shape;
      for (const bool has_tables_of_rows : {false, true}) {
        const at::Tensor angles = has_tables_of_rows ? noise({batch, 1, time, channels / 2}, 3, at::kFloat)
                                                     : noise({time, channels / 2}, 3, at::kFloat);
        const at::Tensor cosine = angles.cos(), sine = angles.sin();
        const at::Tensor x = noise({batch, time, heads, channels}, 1, storage.type).transpose(1, 2);
        const at::Tensor half = wide(x), low = half.narrow(3, 0, channels / 2),
                         high = half.narrow(3, channels / 2, channels / 2);
        const at::Tensor expected =
            at::cat({low * wide(cosine) - high * wide(sine), high * wide(cosine) + low * wide(sine)}, 3);
        const at::Tensor y = turned(x, cosine, sine, 1, storage.element);
        expect_close(y, expected, storage.name);
        expect_close(turned(y, cosine, sine, -1, storage.element), wide(x), storage.name);
        expect_same_bits({y.contiguous()}, {turned(x, cosine, sine, 1, storage.element).contiguous()});
      }
    }
  }
}

}  // namespace
}  // namespace gputrain::ops::cuda
