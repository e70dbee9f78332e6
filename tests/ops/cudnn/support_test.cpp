#include <gtest/gtest.h>

#include "ops/cudnn/asked_graph.hpp"

namespace gputrain::testing_support {
namespace {

TEST(CudnnSupport, CoversConvolutionForEachGpuAndType) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    for (const char* kind : {"sums", "statistics", "gradient_sums"}) {
      expect_as_known(for_each_type(architecture, kind, {{64, 28, 64, 3, 1}}));
    }
  }
}

TEST(CudnnSupport, ReportsGradientsOfStride2AsKnown) {
  expect_as_known(for_each_type("sm_90", "gradient_sums", {{128, 56, 128, 3, 2}}));
}

TEST(CudnnSupport, CoversAttentionForEachGpuAndType) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    expect_as_known(for_each_type(architecture, HeadsToAttend{32, 1024, 12, 12, 64, true}));
  }
}

TEST(CudnnSupport, CoversTextsForEachGpuAndType) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
    expect_as_known(for_each_type(architecture, TextsToAttend{64, 1024, 8192, 32, 8, 128, true, 0}));
  }
}

TEST(CudnnSupport, CoversProductsWithGelu) { expect_as_known(for_each_type("sm_90", 32768, 768, 3072)); }

}  // namespace
}  // namespace gputrain::testing_support
