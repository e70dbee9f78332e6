#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gputrain/core/error.hpp"
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
               .hint = "start at most " + std::to_string(count) + " ranks per host, or widen CUDA_VISIBLE_DEVICES"});
}

}  // namespace

at::Device choose_device(std::string_view request, int local_rank) {
  if (request == "cpu") return at::kCPU;
  if (request != "auto" && request != "cuda") {
    throw Error(ExitCode::usage,
                {.what = "unknown device '" + std::string(request) + "'", .hint = "auto, cpu or cuda"});
  }
  const int count = gpu_count();
  if (request == "auto" && count == 0) return at::kCPU;
  if (local_rank >= count) refuse_missing_gpu(local_rank, count);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  const c10::impl::VirtualGuardImpl gpu(device.type());
  gpu.setDevice(device);
  gpu.exchangeStream(gpu.getStreamFromGlobalPool(device));
  return device;
}

}  // namespace gputrain::device
