#include "gputrain/device/recording.hpp"

#include <exception>
#include <string_view>
#include <utility>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

/// LibTorch's errors go on with where in its sources they arose.
std::string first_line(const std::exception& failure) {
  const std::string_view what = failure.what();
  return std::string(what.substr(0, what.find('\n')));
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const std::exception& failure) {
    const std::string line = first_line(failure);
    return line.empty() ? "unknown" : line;
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

class CudaGraph final : public Recording {
 public:
  explicit CudaGraph(at::Device device) : device_(device) {}

  std::string record(const std::function<void()>& work) override {
    GPUTRAIN_ASSERT(graph_ == nullptr, "a recording is made once");
    synchronize(device_);
    // A graph has memory of its own: what the allocator keeps of earlier steps would stand idle beside it.
    c10::cuda::CUDACachingAllocator::emptyCache();
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Threads that read data may allocate page-locked memory meanwhile: only this one is held to what a graph can do.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
    const std::string obstacle = failure_of(work);
    const std::string at_end = failure_of([&] { graph->capture_end(); });
    if (!at_end.empty()) {
      throw Error(ExitCode::environment,
                  {.what = "the step cannot be recorded as a CUDA graph: " + (obstacle.empty() ? at_end : obstacle),
                   .hint = "train.cuda_graphs: off"});
    }
    if (obstacle.empty()) graph_ = std::move(graph);
    return obstacle;
  }

  void replay() override { graph_->replay(); }

  void instead(const std::function<void()>& work) override {
    const OwnMemory memory(device_, graph_->pool());
    work();
  }

 private:
  at::Device device_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

Recording::~Recording() = default;

std::unique_ptr<Recording> make_recording(at::Device device) {
  return device.is_cuda() ? std::make_unique<CudaGraph>(device) : nullptr;
}

}  // namespace gputrain::device
