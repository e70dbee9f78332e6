#include "gputrain/device/cuda_software.hpp"

#include <ATen/Context.h>

namespace gputrain::device {

CudaSoftware cuda_software() {
  const long cudnn = at::Context::versionRuntimeCuDNN();
  return {.version = static_cast<int>(at::Context::versionCUDART()),
          .cudnn = std::to_string(cudnn / 10000) + "." + std::to_string(cudnn % 10000 / 100)};
}

}  // namespace gputrain::device
