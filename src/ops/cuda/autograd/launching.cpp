#include "launching.hpp"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <torch/headeronly/version.h>

#include "../../dispatch/kernel_autotuner.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::ops {
namespace {

const std::string kTorch = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
                           std::to_string(TORCH_VERSION_PATCH);

KernelAutotuner::Options options_of_process() {
  return {.mode = takes_aten_only() ? KernelAutotuner::Mode::never : KernelAutotuner::Mode::measure,
          .machine = cuda::machine(),
          .file = cuda::choices_file(),
          .time_counts = !at::globalContext().deterministicAlgorithms() && !has_no_clock(),
          .milliseconds = cuda::milliseconds,
          .can_measure = cuda::can_measure,
          .aside = [] {
            return std::make_shared<device::PeakExclusion>(at::Device(at::kCUDA, at::cuda::current_device()));
          }};
}

}  // namespace

KernelAutotuner& kernel_autotuner() {
  static KernelAutotuner choice(options_of_process());
  return choice;
}

namespace cuda {

bool runs_kernels(const at::Tensor& tensor) { return tensor.is_cuda(); }
Stream current_stream() { return at::cuda::getCurrentCUDAStream(); }
int multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }
int major_capability() { return at::cuda::getCurrentDeviceProperties()->major; }
void check_launches() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }

Dropout drawn_dropout(double share) {
  const unsigned threshold = dropout_threshold(share);
  if (threshold == 0) return {};
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  const std::lock_guard lock(generator.mutex());
  const auto state = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(/*increment=*/4);
  if (!state.captured_) return {.threshold = threshold, .seed = state.seed_.val, .offset = state.offset_.val};
  return {.threshold = threshold,
          .offset = state.offset_intragraph_,
          .seed_pointer = state.seed_.ptr,
          .offset_pointer = state.offset_.ptr};
}

double milliseconds(const std::function<void()>& work) {
  // The GPU sleeps first, so that the host's launch time is not measured: a step is replayed as a graph, where short
  // kernels follow each other without a gap. If the GPU woke up before all work was queued, it sleeps longer next time.
  constexpr int64_t kCycles = 1'000'000, kMostCycles = 8 * kCycles;  // about 0.5 ms and 4 ms
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  for (int64_t cycles = kCycles;; cycles *= 2) {
    at::cuda::sleep(cycles);
    begin.record();
    work();
    end.record();
    const bool is_queued_in_time = !begin.query();
    end.synchronize();
    if (is_queued_in_time || cycles == kMostCycles) return static_cast<double>(begin.elapsed_time(end));
  }
}

bool can_measure() { return c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None; }

const std::string& machine() {
  static const std::string text = [] {
    const device::DeviceFacts facts = device::facts_of({at::kCUDA, at::cuda::current_device()});
    return facts.name + ", " + facts.software + ", torch " + kTorch + ", gputrain " GPUTRAIN_VERSION;
  }();
  return text;
}

std::filesystem::path choices_file() {
  if (const char* given = std::getenv("GPUTRAIN_KERNEL_CHOICES")) return given;
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::filesystem::path()
                         : std::filesystem::path(home) / ".cache/gputrain/kernel_choices.jsonl";
}

}  // namespace cuda
}  // namespace gputrain::ops
