#include "gputrain/device/cuda_software.hpp"

namespace gputrain::device {

CudaSoftware cuda_software() { return {}; }

}  // namespace gputrain::device
