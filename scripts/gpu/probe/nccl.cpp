// One rank: the cost to start, all-reduce, capture and abort a communicator, and whether a second one works after it.
#include <chrono>
#include <functional>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

double seconds_of(const std::function<void()>& run) {
  const auto started = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

Group start() {
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = std::chrono::seconds(60);
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::HashStore>(), 0, 1, options);
  group->setBoundDeviceId(at::Device(at::kCUDA, 0));
  group->eagerConnectSingleDevice(at::Device(at::kCUDA, 0));
  return group;
}

}  // namespace

void probe_nccl(Report& report) {
  report.attempt("nccl", Record().set("what", "one rank"), [](Record& record) {
    Group group;
    record.set("start_seconds", seconds_of([&] { group = start(); }));
    std::vector<at::Tensor> tensors{at::ones({64 << 20}, at::TensorOptions().device(at::kCUDA))};
    record.set("all_reduce_256MiB_ms", median_ms([&] { group->allreduce(tensors)->wait(); }, 10));
    record.set("sum_is_right", tensors[0][5].item<double>() == 1);
    {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      at::cuda::CUDAGraph graph;
      group->allreduce(tensors)->wait();
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      group->allreduce(tensors)->wait();
      graph.capture_end();
      record.set("captured_all_reduce_ms", median_ms([&] { graph.replay(); }, 10));
    }
    record.set("abort_seconds", seconds_of([&] { group->abort(); }));
    group.reset();
    record.set("second_start_seconds", seconds_of([&] { group = start(); }));
    group->allreduce(tensors)->wait();
    record.set("shutdown_seconds", seconds_of([&] { group->shutdown(); }));
  });
}

}  // namespace probe
