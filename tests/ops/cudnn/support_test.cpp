#include <gtest/gtest.h>

#include "ops/cudnn/asked_graph.hpp"

namespace gputrain::testing_support {
namespace {

TEST(CudnnSupport, OfOneConvolutionForEachGpuAndType) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    for (const char* kind : {"sums", "gradient_sums"}) {
      expect_as_known(for_each_type(architecture, kind, {{64, 28, 64, 3, 1}}));
    }
  }
}

TEST(CudnnSupport, OfGradientsOfStride2IsSaidAndNotKept) {
  expect_as_known({{"sm_90", "bf16", "gradient_sums", "any", {128, 56, 128, 3, 2}}});
}

}  // namespace
}  // namespace gputrain::testing_support
