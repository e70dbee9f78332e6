#include <exception>
#include <string>

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "first_line.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

[[noreturn]] void refuse_missing_gpu(int local_rank, int count) {
  if (!built_with_cuda()) {
    throw Error(ExitCode::environment, {.what = "device: cuda, but this gputrain was built without CUDA",
                                        .hint = "build with the preset cuda, or set device: cpu"});
  }
  if (count == 0) {
    throw Error(ExitCode::environment,
                {.what = "device: cuda, but no NVIDIA GPU can be used here",
                 .hint = "nvidia-smi shows what the driver sees; check CUDA_VISIBLE_DEVICES, or set device: cpu"});
  }
  throw Error(ExitCode::environment,
              {.what = "local rank " + std::to_string(local_rank) + " has no GPU: only " + std::to_string(count) +
                       (count == 1 ? " is" : " are") + " visible on this host",
               .hint = "start at most " + counted(count, "rank") + " per host, or widen CUDA_VISIBLE_DEVICES"});
}

void refuse_obstacle() {
  const std::string obstacle = gpu_obstacle();
  if (obstacle.empty()) return;
  throw Error(ExitCode::environment,
              {.what = "the GPUs of this machine cannot be used: " + obstacle,
               .hint = "nvidia-smi shows the driver and its CUDA version; device: cpu trains without GPUs"});
}

/// Runs a first kernel, which fails if the GPU is broken or in use, or if LibTorch has no kernels for it.
void make_current(at::Device device) {
  const DeviceFacts facts = facts_of(device);
  try {
    const c10::impl::VirtualGuardImpl gpu(device.type());
    gpu.setDevice(device);
    gpu.exchangeStream(gpu.getStreamFromGlobalPool(device));
    static_cast<void>(at::full({}, 1, at::TensorOptions().dtype(at::kFloat).device(device)).item<float>());
  } catch (const std::exception& failure) {
    throw Error(ExitCode::environment,
                {.what = "GPU " + std::to_string(device.index()) + " (" + facts.name + ", compute capability " +
                         std::to_string(facts.generation / 10) + "." + std::to_string(facts.generation % 10) +
                         ") cannot be used: " + first_line(failure),
                 .hint = "nvidia-smi shows its state and its processes; CUDA_VISIBLE_DEVICES chooses another GPU; "
                         "LibTorch has kernels for compute capability 7.5 and above"});
  }
}

}  // namespace

at::Device choose_device(std::string_view request, int local_rank) {
  if (request == "cpu") return at::kCPU;
  if (request != "auto" && request != "cuda") {
    throw Error(ExitCode::usage,
                {.what = "unknown device '" + std::string(request) + "'", .hint = "auto, cpu or cuda"});
  }
  const int count = gpu_count();
  if (count == 0) refuse_obstacle();
  if (request == "auto" && count == 0) return at::kCPU;
  const int number = count == 1 ? 0 : local_rank;  // a scheduler may show each rank only its own GPU
  if (number >= count) refuse_missing_gpu(local_rank, count);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(number));
  make_current(device);
  return device;
}

}  // namespace gputrain::device
