#include "gputrain/device/captured_graph.hpp"

#include <exception>
#include <utility>
#include <vector>

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

/// During its lifetime, allocations for the current stream come from a graph's memory pool.
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
  /// Ends a capture that failed to end. Otherwise ATen stays in capture mode: it never reuses memory that several
  /// streams have used, never frees the capture's pool, and refuses random numbers.
  void give_up() {
    if (capture_ended_) return;
    const auto try_to = [](const auto& end) {
      try {
        end();
      } catch (const c10::Error&) {
        // Already ended: the failure being handled came later.
      }
    };
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); });
    try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_); });
    for (const auto& [generator, numbers] : captured_generator_states_) generator->capturing_ = false;
    capture_ended_ = true;  // so that the destructor frees the pool
  }
};

class CudaGraphs final : public CapturedGraphs {
 public:
  explicit CudaGraphs(at::Device device) : device_(device) {}

  std::string capture(const std::function<void()>& work) override {
    synchronize(device_);
    // Graphs have their own memory pool, so blocks that the allocator keeps from earlier steps would stay unused.
    if (graphs_.empty()) c10::cuda::CUDACachingAllocator::emptyCache();
    const at::MempoolId_t pool = graphs_.empty() ? at::MempoolId_t{0, 0} : graphs_.front()->pool();
    auto graph = std::make_unique<Graph>();
    // Thread-local mode: other threads that load data may still allocate page-locked memory during the capture.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;
    const std::string obstacle = failure_of(work, failure);
    end(*graph, obstacle, failure);
    if (obstacle.empty()) graphs_.push_back(std::move(graph));
    return obstacle;
  }

  void replay(size_t graph) override { graphs_[graph]->replay(); }

  void run_uncaptured(const std::function<void()>& work) override {
    const OwnMemory memory(device_, graphs_.front()->pool());
    work();
  }

 private:
  /// `earlier`: the failure of `work`, which may leave a collective half captured, so that ending the capture fails
  /// too.
  static void end(Graph& graph, const std::string& obstacle, const std::exception_ptr& earlier) {
    try {
      graph.capture_end();
    } catch (const std::exception& failure) {
      graph.give_up();
      if (shortage_of(failure)) throw;  // instantiating the graph takes memory
      if (earlier && is_shortage(earlier)) std::rethrow_exception(earlier);
      throw Error(ExitCode::environment, {.what = "the step cannot be recorded as a CUDA graph: " +
                                                  (obstacle.empty() ? first_line(failure) : obstacle),
                                          .hint = "train.cuda_graphs: off"});
    }
  }

  at::Device device_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

}  // namespace

CapturedGraphs::~CapturedGraphs() = default;

std::unique_ptr<CapturedGraphs> make_captured_graphs(at::Device device) {
  return device.is_cuda() ? std::make_unique<CudaGraphs>(device) : nullptr;
}

}  // namespace gputrain::device
