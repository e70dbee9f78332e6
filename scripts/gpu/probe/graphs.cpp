// A whole training step in a CUDA graph: forward with dropout, backward into a flat gradient buffer, fused AdamW with
// learning rate and step on the device. Parameters are created on the capture stream, so that their gradient nodes are
// too.
#include <exception>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

constexpr int64_t kWidth = 512, kDepth = 24;

/// A stack of linear layers whose parameters and gradients are views of flat buffers.
struct Net {
  at::Tensor flat, gradient, mean, square, steps, lr, x, target, loss, masks;
  std::vector<at::Tensor> weights;
  double dropout;

  explicit Net(double dropout_rate) : dropout(dropout_rate) {
    const auto options = at::TensorOptions().device(at::kCUDA);
    flat = noise({kDepth * kWidth * kWidth}, at::kFloat, 0.04);
    gradient = at::zeros_like(flat);
    mean = at::zeros_like(flat);
    square = at::zeros_like(flat);
    steps = at::zeros({}, options);
    lr = at::full({}, 1e-3, options);
    x = noise({64, kWidth}, at::kFloat);
    target = noise({64, kWidth}, at::kFloat);
    loss = at::zeros({}, options);
    for (int64_t i = 0; i < kDepth; ++i) {
      const auto view = [&](const at::Tensor& t) {
        return t.narrow(0, i * kWidth * kWidth, kWidth * kWidth).view({kWidth, kWidth});
      };
      weights.push_back(view(flat).detach().requires_grad_(true));
      weights.back().mutable_grad() = view(gradient);
    }
  }

  void step() {
    gradient.zero_();
    at::Tensor h = x;
    for (const at::Tensor& weight : weights) {
      at::Tensor update = at::dropout(at::gelu(at::linear(h, weight)), dropout, true);
      h = h + update;
      masks = update.detach();
    }
    const at::Tensor value = at::mse_loss(h, target);
    value.backward();
    loss.copy_(value.detach());
    steps.add_(1);
    at::_fused_adamw_({flat}, {gradient}, {mean}, {square}, {}, {steps}, lr, 0.9, 0.95, 0.1, 1e-8, false, false);
  }
};

struct Captured {
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  at::cuda::CUDAGraph graph;
  std::unique_ptr<Net> net;

  explicit Captured(double dropout, int warmup = 3) {
    const c10::cuda::CUDAStreamGuard guard(stream);
    net = std::make_unique<Net>(dropout);
    for (int i = 0; i < warmup; ++i) net->step();
    stream.synchronize();
    graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    net->step();
    graph.capture_end();
  }
  void replay() {
    const c10::cuda::CUDAStreamGuard guard(stream);
    graph.replay();
  }
};

void seed() {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  generator.set_current_seed(7);
}

void exactness(Report& report) {
  report.attempt("graphs", Record().set("what", "replayed step equals eager step, no dropout"), [](Record& record) {
    seed();
    Captured captured(0.0);
    const at::Tensor start = captured.net->flat.clone();
    for (int i = 0; i < 5; ++i) captured.replay();
    captured.stream.synchronize();
    seed();
    const c10::cuda::CUDAStreamGuard guard(captured.stream);
    Net eager(0.0);
    for (int i = 0; i < 8; ++i) eager.step();
    captured.stream.synchronize();
    record.set("trained", !captured.net->flat.equal(start)).set("bitwise", captured.net->flat.equal(eager.flat));
    record.set("steps", captured.net->steps.item<double>());
  });
}

void dropout_masks(Report& report) {
  report.attempt("graphs", Record().set("what", "dropout under replay"), [](Record& record) {
    Captured captured(0.5);
    captured.replay();
    captured.stream.synchronize();
    const at::Tensor first = captured.net->masks.eq(0).clone();
    captured.replay();
    captured.stream.synchronize();
    const at::Tensor second = captured.net->masks.eq(0);
    record.set("masks_differ", !first.equal(second));
    record.set("share_dropped", second.to(at::kFloat).mean().item<double>());
  });
  report.attempt("graphs", Record().set("what", "generator state saved and restored around replays"),
                 [](Record& record) {
                   Captured captured(0.5);
                   at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
                   const at::Tensor state = generator.get_state();
                   captured.replay();
                   captured.stream.synchronize();
                   const at::Tensor first = captured.net->masks.eq(0).clone();
                   generator.set_state(state);
                   captured.replay();
                   captured.stream.synchronize();
                   record.set("same_masks_after_restore", captured.net->masks.eq(0).equal(first));
                 });
}

/// Like a loader that copies while a step is captured.
void beside_a_loader(Report& report) {
  report.attempt("graphs", Record().set("what", "captured while a thread copies from page-locked memory"),
                 [](Record& record) {
                   int64_t copies = 0;
                   std::exception_ptr failure;
                   const auto load = [&](const std::stop_token& ends) {
                     try {
                       const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
                       while (!ends.stop_requested()) {
                         const auto bytes = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
                         at::zeros({(++copies % 8 + 1) << 20}, bytes).to(at::kCUDA, /*non_blocking=*/true);
                       }
                     } catch (const std::exception&) {
                       failure = std::current_exception();
                     }
                   };
                   {
                     const std::jthread loader(load);
                     Captured captured(0.1);
                     captured.replay();
                     captured.stream.synchronize();
                   }
                   if (failure) std::rethrow_exception(failure);
                   record.set("copies", copies);
                 });
}

/// Eager steps in the graph's memory pool, between replays.
void eager_in_its_memory(Report& report) {
  report.attempt("graphs", Record().set("what", "eager steps in the graph's memory, between replays"),
                 [](Record& record) {
                   namespace allocator = c10::cuda::CUDACachingAllocator;
                   const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
                   const auto reserved = [&] { return allocator::getDeviceStats(0).reserved_bytes[all].current; };
                   allocator::emptyCache();
                   seed();
                   Captured captured(0.0);
                   const c10::cuda::CUDAStreamGuard guard(captured.stream);
                   allocator::emptyCache();
                   const int64_t before = reserved();
                   const cudaStream_t ours = captured.stream;
                   for (int i = 0; i < 3; ++i) {
                     captured.graph.replay();
                     allocator::beginAllocateToPool(0, captured.graph.pool(),
                                                    [ours](cudaStream_t stream) { return stream == ours; });
                     captured.net->step();
                     allocator::endAllocateToPool(0, captured.graph.pool());
                     allocator::releasePool(0, captured.graph.pool());
                   }
                   record.set("grown_MiB", (reserved() - before) >> 20);
                   captured.graph.replay();
                   seed();
                   Net eager(0.0);
                   for (int i = 0; i < 10; ++i) eager.step();
                   record.set("bitwise", captured.net->flat.equal(eager.flat));
                 });
}

void savings(Report& report) {
  report.attempt("graphs", Record().set("what", "time of a small step"), [](Record& record) {
    Captured captured(0.1);
    const c10::cuda::CUDAStreamGuard guard(captured.stream);
    record.set("replay_ms", median_ms([&] { captured.graph.replay(); }));
    Net eager(0.1);
    record.set("eager_ms", median_ms([&] { eager.step(); }));
  });
}

}  // namespace

void probe_graphs(Report& report) {
  exactness(report);
  dropout_masks(report);
  beside_a_loader(report);
  eager_in_its_memory(report);
  savings(report);
}

}  // namespace probe
