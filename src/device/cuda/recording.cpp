#include "gputrain/device/recording.hpp"

#include <exception>
#include <utility>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "../first_line.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

std::string failure_of(const std::function<void()>& action, std::exception_ptr& kept) {
  try {
    action();
    return {};
  } catch (const std::exception& failure) {
    kept = std::current_exception();
    const std::string line = first_line(failure);
    return line.empty() ? "unknown" : line;
  }
}

bool is_shortage(const std::exception_ptr& kept) {
  try {
    std::rethrow_exception(kept);
  } catch (const std::exception& failure) {
    return shortage_of(failure).has_value();
  }
}

/// While it lives, what is allocated for the current stream comes from a graph's memory.
class OwnMemory {
 public:
  OwnMemory(at::Device device, at::MempoolId_t pool) : device_(device.index()), pool_(pool) {
    const cudaStream_t ours = c10::cuda::getCurrentCUDAStream(device_);
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, pool_,
                                                         [ours](cudaStream_t stream) { return stream == ours; });
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
    c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
  }

 private:
  c10::DeviceIndex device_;
  at::MempoolId_t pool_;
};

class Graph final : public at::cuda::CUDAGraph {
 public:
  /// Where the end of its recording fails, ATen stays as within one: no memory that several streams have used comes
  /// back, that of the recording is never given up, and random numbers are refused.
  void give_up() {
    if (capture_ended_) return;
    const auto try_to = [](const auto& end) {
      try {
        end();
      } catch (const c10::Error&) {
        // It has ended already: the failure that is being handled came later.
      }
    };
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); });
    try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_); });
    for (const auto& [generator, numbers] : captured_generator_states_) generator->capturing_ = false;
    capture_ended_ = true;  // its memory is given back with it
  }
};

class CudaGraph final : public Recording {
 public:
  explicit CudaGraph(at::Device device) : device_(device) {}

  std::string record(const std::function<void()>& work) override {
    GPUTRAIN_ASSERT(graph_ == nullptr, "a recording is made once");
    synchronize(device_);
    // A graph has memory of its own: what the allocator keeps of earlier steps would stand idle beside it.
    c10::cuda::CUDACachingAllocator::emptyCache();
    auto graph = std::make_unique<Graph>();
    // Threads that read data may allocate page-locked memory meanwhile: only this one is held to what a graph can do.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;
    const std::string obstacle = failure_of(work, failure);
    end(*graph, obstacle, failure);
    if (obstacle.empty()) graph_ = std::move(graph);
    return obstacle;
  }

  void replay() override { graph_->replay(); }

  void instead(const std::function<void()>& work) override {
    const OwnMemory memory(device_, graph_->pool());
    work();
  }

 private:
  /// `earlier`: the obstacle, which may have left a collective half recorded, so that the end fails as well.
  static void end(Graph& graph, const std::string& obstacle, const std::exception_ptr& earlier) {
    try {
      graph.capture_end();
    } catch (const std::exception& failure) {
      graph.give_up();
      if (shortage_of(failure)) throw;  // what was recorded is made runnable here, which takes memory
      if (earlier && is_shortage(earlier)) std::rethrow_exception(earlier);
      throw Error(ExitCode::environment, {.what = "the step cannot be recorded as a CUDA graph: " +
                                                  (obstacle.empty() ? first_line(failure) : obstacle),
                                          .hint = "train.cuda_graphs: off"});
    }
  }

  at::Device device_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace

Recording::~Recording() = default;

std::unique_ptr<Recording> make_recording(at::Device device) {
  return device.is_cuda() ? std::make_unique<CudaGraph>(device) : nullptr;
}

}  // namespace gputrain::device
