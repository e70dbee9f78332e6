#pragma once

namespace gputrain::testing_support {

/// How often the CPU's answers in place of cuDNN's kernels were asked for.
struct CalledSums {
  int forward = 0, backward = 0;
};
CalledSums& called_sums();

}  // namespace gputrain::testing_support
