#pragma once

namespace gputrain::testing_support {

/// Number of calls of the CPU versions of cuDNN's kernels.
struct CalledSums {
  int forward = 0, backward = 0;
};
CalledSums& called_sums();

}  // namespace gputrain::testing_support
