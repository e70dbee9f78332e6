// The NCCL that this build uses.
#pragma once

#include <string>

namespace gputrain::comm {

/// Returns "nccl 2.28.9"; empty in a build without CUDA.
std::string nccl_name();

}  // namespace gputrain::comm
