// How many GPUs the ranks of this host could use: asked of the driver, as who only starts ranks is spared LibTorch.
#pragma once

namespace gputrain::launch {

/// 0 without a driver, without CUDA in the build, or with CUDA_VISIBLE_DEVICES empty.
int gpus_here();

}  // namespace gputrain::launch
