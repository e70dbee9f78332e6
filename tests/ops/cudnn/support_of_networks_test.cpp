#include <gtest/gtest.h>

#include "ops/cudnn/asked_graph.hpp"

namespace gputrain::testing_support {
namespace {

/// Each distinct convolution of ResNet-50 for images of 224 x 224.
std::vector<Conv> resnet50() {
  std::vector<Conv> convs{{3, 224, 64, 7, 2}};
  int in = 64, size = 56;
  for (int stage = 0; stage < 4; ++stage) {
    const int width = 64 << stage, stride = stage == 0 ? 1 : 2;
    convs.insert(
        convs.end(),
        {{in, size, width, 1, 1}, {width, size, width, 3, stride}, {in, size, 4 * width, 1, stride}});  // the shortcut
    size /= stride;
    in = 4 * width;
    convs.insert(convs.end(), {{width, size, in, 1, 1}, {in, size, width, 1, 1}, {width, size, width, 3, 1}});
  }
  return convs;
}

TEST(CudnnNetworkSupport, CoversResnet50AsKnown) {
  for (const char* kind : {"sums", "statistics", "gradient_sums"}) {
    for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
      expect_as_known(for_each_type(architecture, kind, resnet50()));
    }
    expect_as_known(for_each_type("sm_90", kind, resnet50(), "deterministic"));
  }
}

TEST(CudnnNetworkSupport, CoversOddSizesAsKnown) {
  for (const char* kind : {"sums", "statistics", "gradient_sums"}) {
    expect_as_known(for_each_type("sm_90", kind, {{24, 9, 40, 3, 1, 3}, {8, 5, 16, 1, 1, 3}, {32, 13, 8, 5, 1, 3}}));
  }
}

TEST(CudnnNetworkSupport, CoversAttentionAsKnown) {
  const HeadsToAttend gpt2{32, 1024, 12, 12, 64, true}, vit{256, 197, 12, 12, 64, false},
      grouped{4, 4096, 32, 8, 128, true}, small{12, 64, 4, 4, 32, true};
  for (const HeadsToAttend& heads : {gpt2, vit, grouped, small}) {
    for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) expect_as_known(for_each_type(architecture, heads));
    expect_as_known(for_each_type("sm_90", heads, "deterministic"));
  }
}

TEST(CudnnNetworkSupport, CoversProductsWithGeluAsKnown) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
    expect_as_known(for_each_type(architecture, 256 * 197, 768, 3072));
    expect_as_known(for_each_type(architecture, 57, 3072, 768));
  }
}

TEST(CudnnNetworkSupport, CoversTextsAsKnown) {
  std::vector<TextsToAttend> all;
  for (const int capacity : {8, 64, 256}) all.push_back({capacity, 2048, 8192, 12, 12, 64, true, 0});
  for (const bool causal : {true, false})
    for (const int window : {0, 128}) all.push_back({64, 1024, 8192, 32, 8, 128, causal, window});
  for (const int channels : {16, 48, 96, 256}) all.push_back({64, 1024, 8192, 8, 4, channels, true, 0});
  for (const TextsToAttend& texts : all) {
    for (const char* architecture : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
      for (const char* determinism : {"any", "deterministic"})
        expect_as_known(for_each_type(architecture, texts, determinism));
    }
  }
}

}  // namespace
}  // namespace gputrain::testing_support
