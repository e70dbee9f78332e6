// Our own kernels next to ATen's operators, in GB/s.
#include "kernels.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>

#include "../../../src/ops/cuda/kernels/activation.hpp"
#include "../../../src/ops/cuda/kernels/cross_entropy.hpp"
#include "../../../src/ops/cuda/kernels/norm.hpp"
#include "../../../src/ops/cuda/kernels/optimizer.hpp"
#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

using namespace gputrain::ops::cuda;

constexpr int64_t kRows = 32768, kWidth = 768;

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }
at::Tensor floats(at::IntArrayRef sizes) { return at::empty(sizes, at::device(at::kCUDA).dtype(at::kFloat)); }

template <class T = void>
T* pointer(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

void set_rate(Record& record, double ms, int64_t bytes) {
  record.set("ms", ms).set("TB/s", static_cast<double>(bytes) / ms / 1e9);
}

void copy(Report& report, int blocks) {
  report.attempt("kernels", Record().set("what", "copy, 16 bytes a thread").set("blocks", blocks), [&](Record& record) {
    const at::Tensor from = noise({int64_t{1} << 30}, at::kBFloat16);
    const at::Tensor to = at::full_like(from, std::nan(""));
    const double ms = median_ms([&] { launch_copy(from.data_ptr(), to.data_ptr(), 2L << 30, blocks, stream()); });
    set_rate(record, ms, int64_t{4} << 30);
    record.set("equal", to.equal(from));
  });
}

void norm(Record& record) {
  const at::Tensor x = noise({kRows, kWidth}, at::kBFloat16), residual = noise({kRows, kWidth}, at::kBFloat16);
  const at::Tensor scale = noise({kWidth}, at::kFloat), shift = noise({kWidth}, at::kFloat);
  const at::Tensor z = at::full_like(x, std::nan("")), y = at::full_like(x, std::nan(""));
  const at::Tensor mean = floats({kRows}), rstd = floats({kRows});
  const NormForward forward{Element::bf16,
                            kRows,
                            kWidth,
                            true,
                            1e-5F,
                            {},
                            pointer(x),
                            pointer(residual),
                            pointer<float>(scale),
                            pointer<float>(shift),
                            pointer(z),
                            pointer(y),
                            pointer<float>(mean),
                            pointer<float>(rstd)};
  set_rate(record, median_ms([&] { norm_forward(forward, stream()); }), 8 * kRows * kWidth);
  const at::Tensor wide = (x + residual).to(at::kDouble);
  const at::Tensor expected = at::layer_norm(wide, {kWidth}, scale.to(at::kDouble), shift.to(at::kDouble), 1e-5);
  record.set("relative_error", relative_error(y, expected));
  const at::Tensor scale16 = scale.to(at::kBFloat16), shift16 = shift.to(at::kBFloat16);
  record.set("aten_ms", median_ms([&] { at::layer_norm(x + residual, {kWidth}, scale16, shift16, 1e-5); }));
  for (const int parts : {132, 2 * 132, 4 * 132}) {
    const at::Tensor dz = at::full_like(x, std::nan("")), partials = floats({parts, 2, kWidth});
    const NormBackward backward{Element::bf16,
                                kRows,
                                kWidth,
                                true,
                                {},
                                pointer(x),
                                pointer(residual),
                                pointer(z),
                                pointer<float>(scale),
                                pointer<float>(mean),
                                pointer<float>(rstd),
                                pointer(dz),
                                nullptr,
                                pointer<float>(partials),
                                parts};
    const double ms = median_ms([&] { norm_backward(backward, stream()); });
    record.set("backward_ms, " + std::to_string(parts) + " blocks", ms);
  }
}

void loss(Record& record) {
  constexpr int64_t kLossRows = 8192, kClasses = 50257, kColumns = 50304;
  const at::Tensor logits = noise({kLossRows, kColumns}, at::kBFloat16);
  const at::Tensor targets = at::randint(kClasses, {kLossRows}, at::device(at::kCUDA).dtype(at::kLong));
  const at::Tensor of_rows = floats({kLossRows});
  const at::Tensor weight = at::ones({1}, at::device(at::kCUDA).dtype(at::kDouble));
  CrossEntropyRows rows{
      Element::bf16,           kLossRows, kColumns, kClasses, -100, 0.0F, pointer(logits), pointer<int64_t>(targets),
      pointer<float>(of_rows), nullptr};
  const int64_t bytes = kLossRows * kColumns * 2;
  const double forward = median_ms([&] { cross_entropy(rows, stream()); });
  record.set("forward_ms", forward).set("forward TB/s", static_cast<double>(bytes) / forward / 1e9);
  rows.weight = pointer<double>(weight);
  set_rate(record, median_ms([&] { cross_entropy(rows, stream()); }), 2 * bytes);
  record.set("scale_by_one_ms", median_ms([&] { scale_logits(rows, stream()); }));
  record.set("aten_log_softmax_ms", median_ms([&] { at::log_softmax(logits, 1, at::kFloat); }));
}

void gelu(Record& record) {
  const int64_t width = 4 * kWidth;
  const at::Tensor x = noise({kRows, width}, at::kBFloat16), y = at::empty_like(x), dx = at::empty_like(x);
  for (const int parts : {44, 88, 176}) {
    ActivationRows rows{
        Element::bf16, ActivationKind::gelu_tanh, kRows, width, pointer(x), pointer(y), pointer(y), pointer(dx), parts};
    const std::string blocks = ", " + std::to_string(parts) + " parts";
    record.set("ms" + blocks, median_ms([&] { activation_forward(rows, stream()); }));
    record.set("backward_ms" + blocks, median_ms([&] { activation_backward(rows, stream()); }));
    const at::Tensor partials = floats({parts, width});
    rows.partials = pointer<float>(partials);
    record.set("backward_with_sums_ms" + blocks, median_ms([&] { activation_backward(rows, stream()); }));
  }
}

void adamw_update(Record& record) {
  constexpr int64_t kNumel = 124'475'904;
  const at::Tensor values = floats({kNumel}).normal_(), gradients = floats({kNumel}).normal_();
  const auto state = at::device(at::kCUDA).dtype(at::kFloat);
  const at::Tensor first = at::zeros({kNumel}, state), second = at::zeros({kNumel}, state);
  const at::Tensor lr = at::full({1}, 1e-3, state), step = at::ones({1}, state);
  const Stretch stretch{0, kNumel, 0, 0.1F};
  const at::Tensor table = at::empty({static_cast<int64_t>(sizeof(Stretch))}, at::device(at::kCUDA).dtype(at::kByte));
  cudaMemcpy(table.mutable_data_ptr(), &stretch, sizeof(Stretch), cudaMemcpyHostToDevice);
  AdamWUpdate p{};
  p.common.values = pointer<float>(values);
  p.common.gradients = pointer<float>(gradients);
  p.common.stretches = pointer<Stretch>(table);
  p.common.count = 1;
  p.common.blocks = blocks_of(kNumel);
  p.common.lr = pointer<float>(lr);
  p.first = pointer<float>(first);
  p.second = pointer<float>(second);
  p.step = pointer<float>(step);
  p.beta1 = 0.9;
  p.beta2 = 0.95;
  p.eps = 1e-8F;
  set_rate(record, median_ms([&] { adamw(p, stream()); }), kNumel * 28);
}

}  // namespace

void probe_kernels(Report& report) {
  for (const int blocks : {132 * 2, 132 * 4, 132 * 16}) copy(report, blocks);
  report.attempt("kernels", Record().set("what", "residual + LayerNorm, width 768"), norm);
  report.attempt("kernels", Record().set("what", "cross entropy, 50304 columns"), loss);
  report.attempt("kernels", Record().set("what", "GELU, width 3072"), gelu);
  report.attempt("kernels", Record().set("what", "AdamW, 124M parameters"), adamw_update);
}

}  // namespace probe
