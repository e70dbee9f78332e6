#include <string>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

/// GEMMs with a long inner axis (weight gradient over 32,768 tokens): does split-K lose precision?
void long_products(Report& report) {
  for (const bool reduced : {false, true}) {
    Record what;
    what.set("what", "bf16 product, inner axis 32768").set("reduced precision reduction allowed", reduced);
    report.attempt("numerics", what, [&](Record& record) {
      at::globalContext().setAllowBF16ReductionCuBLAS(reduced, reduced);
      const at::Tensor a = noise({768, 32768}, at::kBFloat16), b = noise({32768, 768}, at::kBFloat16);
      const at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
      record.set("relative_error", relative_error(at::mm(a, b), expected)).set("ms", median_ms([&] { at::mm(a, b); }));
    });
  }
}

void float32_products(Report& report) {
  for (const char* precision : {"highest", "high"}) {
    report.attempt("numerics", Record().set("what", "fp32 product 4096").set("precision", precision),
                   [&](Record& record) {
                     at::globalContext().setFloat32MatmulPrecision(precision);
                     const at::Tensor a = noise({4096, 4096}, at::kFloat), b = noise({4096, 4096}, at::kFloat);
                     const at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
                     const double ms = median_ms([&] { at::mm(a, b); });
                     record.set("relative_error", relative_error(at::mm(a, b), expected))
                         .set("TFLOP/s", 2.0 * 4096 * 4096 * 4096 / ms / 1e9);
                   });
  }
  at::globalContext().setFloat32MatmulPrecision("highest");
}

/// at::linear on bf16 tensors without autocast: fuses the bias, for 2-d and 3-d inputs.
void plain_linear(Report& report) {
  for (const bool three_axes : {false, true}) {
    report.attempt(
        "numerics", Record().set("what", "bf16 linear + bias").set("3-d input", three_axes), [&](Record& record) {
          at::Tensor x = noise({32768, 768}, at::kBFloat16);
          const at::Tensor weight = noise({3072, 768}, at::kBFloat16, 0.02), bias = noise({3072}, at::kBFloat16);
          const at::Tensor expected = at::linear(x.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat));
          if (three_axes) x = x.view({32, 1024, 768});
          record.set("relative_error", relative_error(at::linear(x, weight, bias).view({32768, 3072}), expected));
          record.set("with_bias_ms", median_ms([&] { at::linear(x, weight, bias); }));
          record.set("without_ms", median_ms([&] { at::linear(x, weight); }));
        });
  }
}

/// The result type of each operator under CUDA autocast to bf16; a Precision policy must equal this list.
void autocast_types(Report& report) {
  report.attempt("numerics", Record().set("what", "result types under bf16 autocast"), [](Record& record) {
    const at::Tensor x = noise({64, 64}, at::kFloat), half = noise({64, 64}, at::kBFloat16);
    const at::Tensor indices = at::randint(64, {64}, at::TensorOptions().device(at::kCUDA).dtype(at::kLong));
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    const auto type = [](const at::Tensor& t) { return std::string(c10::toString(t.scalar_type())); };
    record.set("linear", type(at::linear(x, x))).set("matmul", type(at::matmul(x, x)));
    record.set("layer_norm of bf16", type(at::layer_norm(half, {64})))
        .set("softmax of bf16", type(at::softmax(half, 1)));
    record.set("sum of bf16", type(half.sum())).set("bf16 + fp32", type(half + x));
    record.set("embedding", type(at::embedding(x, indices)));
    record.set("cross_entropy of bf16", type(at::cross_entropy_loss(half, indices)));
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    at::autocast::clear_cache();
  });
}

}  // namespace

void probe_numerics(Report& report) {
  long_products(report);
  float32_products(report);
  plain_linear(report);
  autocast_types(report);
}

}  // namespace probe
