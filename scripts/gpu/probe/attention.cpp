// Scaled dot-product attention at the models' shapes, by back end. Queries, keys and values are views of one packed
// [batch, time, heads, 3, width] product, as in a layer, so the time includes a copy to another layout.
#include <optional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

struct Shape {
  const char* name;
  int64_t batch, heads, key_heads, time, width;
  bool causal;
  double dropout;
};

struct Backend {
  const char* name;
  at::SDPBackend kind;
};

void only(at::SDPBackend backend) {
  auto& context = at::globalContext();
  context.setSDPUseFlash(backend == at::SDPBackend::flash_attention);
  context.setSDPUseMemEfficient(backend == at::SDPBackend::efficient_attention);
  context.setSDPUseCuDNN(backend == at::SDPBackend::cudnn_attention);
  context.setSDPUseMath(backend == at::SDPBackend::math);
}

void all_backends() {
  auto& context = at::globalContext();
  context.setSDPUseFlash(true);
  context.setSDPUseMemEfficient(true);
  context.setSDPUseCuDNN(true);
  context.setSDPUseMath(true);
}

std::vector<at::Tensor> packed(const Shape& s) {
  const int64_t heads = s.heads + 2 * s.key_heads;
  const at::Tensor all = noise({s.batch, s.time, heads, s.width}, at::kBFloat16).requires_grad_(true);
  const auto part = [&](int64_t begin, int64_t count) { return all.narrow(2, begin, count).transpose(1, 2); };
  return {all, part(0, s.heads), part(s.heads, s.key_heads), part(s.heads + s.key_heads, s.key_heads)};
}

at::Tensor attend(const Shape& s, const std::vector<at::Tensor>& t) {
  return at::scaled_dot_product_attention(t[1], t[2], t[3], {}, s.dropout, s.causal, std::nullopt,
                                          s.heads != s.key_heads);
}

void measure(const Shape& s, Record& record) {
  const auto tensors = packed(s);
  at::Tensor out = attend(s, tensors);
  const at::Tensor gradient = noise(out.sizes(), at::kBFloat16);
  const double forward = median_ms([&] { out = attend(s, tensors); }, 10);
  const double both = median_ms([&] { torch::autograd::grad({attend(s, tensors)}, {tensors[0]}, {gradient}); }, 10);
  const double flop = 4.0 * static_cast<double>(s.batch * s.heads * s.width) * static_cast<double>(s.time * s.time) *
                      (s.causal ? 0.5 : 1.0);
  record.set("forward_ms", forward).set("forward_TFLOP/s", flop / forward / 1e9);
  record.set("backward_ms", both - forward).set("backward_TFLOP/s", 2.5 * flop / (both - forward) / 1e9);
  if (s.dropout == 0 && s.batch * s.heads * s.time * s.time <= int64_t{1} << 31) {
    only(at::SDPBackend::math);
    std::vector<at::Tensor> wide;
    for (const auto& t : tensors) wide.push_back(t.detach().narrow(0, 0, 1).to(at::kDouble));
    record.set("relative_error", relative_error(out.detach().narrow(0, 0, 1), attend(s, wide)));
  }
}

}  // namespace

void probe_attention(Report& report) {
  const std::vector<Shape> shapes{
      {"gpt2", 32, 12, 12, 1024, 64, true, 0.0}, {"gpt2 with dropout", 32, 12, 12, 1024, 64, true, 0.1},
      {"bert", 32, 12, 12, 512, 64, false, 0.0}, {"bert with dropout", 32, 12, 12, 512, 64, false, 0.1},
      {"vit", 256, 12, 12, 197, 64, false, 0.0}, {"llama, grouped", 4, 32, 8, 4096, 128, true, 0.0}};
  const std::vector<Backend> backends{{"flash", at::SDPBackend::flash_attention},
                                      {"cudnn", at::SDPBackend::cudnn_attention},
                                      {"efficient", at::SDPBackend::efficient_attention}};
  for (const Shape& shape : shapes) {
    for (const Backend& backend : backends) {
      for (const bool deterministic : {false, true}) {
        Record record;
        record.set("shape", shape.name).set("backend", backend.name).set("deterministic", deterministic);
        report.attempt("attention", record, [&](Record& result) {
          only(backend.kind);
          at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/true);
          measure(shape, result);
        });
      }
    }
    all_backends();
    at::globalContext().setDeterministicAlgorithms(false, false);
    report.attempt("attention", Record().set("shape", shape.name).set("backend", "PyTorch's choice"),
                   [&](Record& result) { measure(shape, result); });
    all_backends();
  }
}

}  // namespace probe
