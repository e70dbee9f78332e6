// Every distinct convolution of ResNet-50 at batch 256, channels last: forward, input gradient, weight gradient, with
// cuDNN's benchmark mode. `count` is how often the network has it.
#include <array>
#include <optional>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

struct Convolution {
  int64_t in, out, kernel, stride, size;  // size: height and width of the input
  int count;
};

/// The four bottleneck stages: width of the middle convolution, input size, number of blocks.
std::vector<Convolution> resnet50() {
  std::vector<Convolution> all{{3, 64, 7, 2, 224, 1}};
  int64_t in = 64, size = 56;
  const std::vector<std::pair<int64_t, int>> stages{{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto [middle, blocks] = stages[i];
    const int64_t out = middle * 4, stride = i == 0 ? 1 : 2;
    all.push_back({in, middle, 1, 1, size, 1});           // first block: reduce,
    all.push_back({middle, middle, 3, stride, size, 1});  // middle (strided from the second stage on),
    all.push_back({in, out, 1, stride, size, 1});         // shortcut
    size /= stride;
    all.push_back({middle, out, 1, 1, size, blocks});      // every block: expand
    all.push_back({out, middle, 1, 1, size, blocks - 1});  // later blocks: reduce, middle
    all.push_back({middle, middle, 3, 1, size, blocks - 1});
    in = out;
  }
  return all;
}

void measure(const Convolution& c, at::ScalarType dtype, Record& record) {
  const int64_t batch = 256, padding = c.kernel / 2, out_size = (c.size + 2 * padding - c.kernel) / c.stride + 1;
  const auto nhwc = [](const at::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); };
  const at::Tensor x = nhwc(noise({batch, c.in, c.size, c.size}, dtype));
  const at::Tensor weight = nhwc(noise({c.out, c.in, c.kernel, c.kernel}, dtype, 0.05));
  const at::Tensor dy = nhwc(noise({batch, c.out, out_size, out_size}, dtype));
  const std::array<int64_t, 2> stride{c.stride, c.stride}, pad{padding, padding}, one{1, 1}, zero{0, 0};
  const auto backward = [&](bool input) {
    at::convolution_backward(dy, x, weight, std::nullopt, stride, pad, one, false, zero, 1, {input, !input, false});
  };
  const double flop = 2.0 * static_cast<double>(batch * c.out * out_size * out_size * c.in * c.kernel * c.kernel);
  const double forward = median_ms([&] { at::convolution(x, weight, {}, stride, pad, one, false, zero, 1); }, 7, 2);
  record.set("forward_ms", forward).set("forward_TFLOP/s", flop / forward / 1e9);
  if (c.in > 3) {
    const double input = median_ms([&] { backward(true); }, 7, 2);
    record.set("input_gradient_ms", input).set("input_gradient_TFLOP/s", flop / input / 1e9);
  }
  const double weights = median_ms([&] { backward(false); }, 7, 2);
  record.set("weight_gradient_ms", weights).set("weight_gradient_TFLOP/s", flop / weights / 1e9);
}

}  // namespace

void probe_convolution(Report& report) {
  at::globalContext().setBenchmarkCuDNN(true);
  for (const auto& [name, dtype] : {std::pair{"bf16", at::kBFloat16}, std::pair{"fp16", at::kHalf}}) {
    for (const Convolution& c : resnet50()) {
      Record record;
      record.set("type", name).set("in", c.in).set("out", c.out).set("kernel", c.kernel).set("stride", c.stride);
      record.set("size", c.size).set("count", c.count);
      report.attempt("convolution", record, [&, type = dtype](Record& result) { measure(c, type, result); });
    }
  }
}

}  // namespace probe
