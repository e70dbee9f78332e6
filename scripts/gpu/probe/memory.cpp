#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

void device_copies(Report& report) {
  for (const int64_t mib : {16, 256, 4096}) {
    report.attempt("memory", Record().set("what", "copy on the device").set("MiB", mib), [&](Record& record) {
      const at::Tensor from = noise({mib * kMiB / 4}, at::kFloat);
      const at::Tensor to = at::empty_like(from);
      const double ms = median_ms([&] { to.copy_(from); });
      record.set("ms", ms).set("TB/s read and written", 2.0 * static_cast<double>(mib * kMiB) / ms / 1e9);
    });
  }
}

void host_copies(Report& report) {
  for (const bool pinned : {false, true}) {
    for (const bool to_device : {false, true}) {
      Record what;
      what.set("what", to_device ? "host to device" : "device to host").set("pinned", pinned);
      report.attempt("memory", what, [&](Record& record) {
        const at::Tensor host = at::zeros({256 * kMiB}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
        const at::Tensor device = at::zeros({256 * kMiB}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
        const double ms = median_ms([&] { to_device ? device.copy_(host, true) : host.copy_(device, true); }, 10);
        record.set("ms", ms).set("GB/s", 256.0 * kMiB / ms / 1e6);
      });
    }
  }
}

/// Copies a batch on a second stream while GEMMs run on the first.
void overlapped_copy(Report& report) {
  report.attempt("memory", Record().set("what", "pinned copy beside products"), [](Record& record) {
    const at::Tensor host = at::zeros({256 * kMiB}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    const at::Tensor device = at::zeros({256 * kMiB}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
    const at::Tensor a = noise({8192, 8192}, at::kBFloat16), b = noise({8192, 8192}, at::kBFloat16);
    at::Tensor c = at::empty_like(a);
    const c10::cuda::CUDAStream copy_stream = c10::cuda::getStreamFromPool();
    const auto products = [&] {
      for (int i = 0; i < 4; ++i) at::mm_out(c, a, b);
    };
    const double products_ms = median_ms(products, 10);
    const double copy_ms = median_ms([&] { device.copy_(host, true); }, 10);
    const double both_ms = median_ms(
        [&] {
          at::cuda::CUDAEvent begin, end;
          begin.record();
          begin.block(copy_stream);
          {
            const c10::cuda::CUDAStreamGuard guard(copy_stream);
            device.copy_(host, true);
            end.record();
          }
          products();
          end.block(c10::cuda::getCurrentCUDAStream());
        },
        10);
    record.set("products_ms", products_ms).set("copy_ms", copy_ms).set("both_ms", both_ms);
  });
}

void launch_gaps(Report& report) {
  report.attempt("memory", Record().set("what", "1,000 tiny kernels"), [](Record& record) {
    at::Tensor x = at::zeros({1}, at::TensorOptions().device(at::kCUDA));
    const auto run = [&] {
      for (int i = 0; i < 1000; ++i) x.add_(1);
    };
    record.set("eager_us_each", median_ms(run, 10));
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    at::cuda::CUDAGraph graph;
    run();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    run();
    graph.capture_end();
    record.set("graph_us_each", median_ms([&] { graph.replay(); }, 10));
  });
}

void allocator(Report& report) {
  const char* settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  Record what;
  what.set("what", "allocator").set("settings", settings != nullptr ? settings : "default");
  report.attempt("memory", what, [](Record& record) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    allocator::emptyCache();
    allocator::resetPeakStats(0);
    std::vector<at::Tensor> kept;
    for (int64_t i = 1; i <= 200; ++i) {  // growing sizes, every other one freed: fragments a caching allocator
      kept.push_back(at::empty({i * 3 * kMiB}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)));
      if (i % 2 == 0) kept[static_cast<size_t>(i) / 2] = at::Tensor();
    }
    const auto stats = allocator::getDeviceStats(0);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    record.set("allocated_MiB", stats.allocated_bytes[all].current / kMiB);
    record.set("reserved_MiB", stats.reserved_bytes[all].current / kMiB);
    record.set("peak_allocated_MiB", stats.allocated_bytes[all].peak / kMiB);
    kept.clear();
    allocator::emptyCache();
    record.set("reserved_after_empty_MiB", allocator::getDeviceStats(0).reserved_bytes[all].current / kMiB);
  });
  report.attempt(
      "memory", Record().set("what", "out of memory is an exception one can go on from"), [](Record& record) {
        bool caught = false;
        try {
          at::empty({int64_t{1} << 50}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
        } catch (const c10::OutOfMemoryError&) {
          caught = true;
        }
        record.set("caught", caught)
            .set("works_after", at::zeros({8}, at::TensorOptions().device(at::kCUDA)).sum().item<double>() == 0);
      });
}

}  // namespace

void probe_memory(Report& report) {
  device_copies(report);
  host_copies(report);
  overlapped_copy(report);
  launch_gaps(report);
  allocator(report);
}

}  // namespace probe
