// Counts this host's GPUs through the CUDA driver, because the launcher does not load LibTorch.
#pragma once

namespace gputrain::launch {

/// Returns the number of GPUs; 0 without a driver, without CUDA in the build, or with an empty CUDA_VISIBLE_DEVICES.
int gpus_here();

}  // namespace gputrain::launch
