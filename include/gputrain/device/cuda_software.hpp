// The CUDA libraries of this build, which are there without a GPU too.
#pragma once

#include <string>

namespace gputrain::device {

struct CudaSoftware {
  int version = 0;    // 13000 for 13.0; 0: a build without CUDA
  std::string cudnn;  // "9.15"
};
CudaSoftware cuda_software();

}  // namespace gputrain::device
