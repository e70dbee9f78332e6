#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

TEST(Generators, RepeatDrawsOfASeed) {
  seed_generators(at::kCPU, 17);
  const at::Tensor first = at::rand({100});
  EXPECT_FALSE(at::equal(first, at::rand({100})));
  seed_generators(at::kCPU, 17);
  EXPECT_TRUE(at::equal(first, at::rand({100})));
}

TEST(Generators, ContinueFromRestoredState) {
  seed_generators(at::kCPU, 3);
  (void)at::rand({7});
  const at::Tensor state = generator_state(at::kCPU);
  const at::Tensor expected = at::rand({50});
  seed_generators(at::kCPU, 4);
  set_generator_state(at::kCPU, state);
  EXPECT_TRUE(at::equal(expected, at::rand({50})));
}

TEST(Generators, RefuseInvalidState) {
  for (const at::Tensor& wrong : {at::Tensor{}, at::zeros({3}, at::kByte), at::zeros({3})}) {
    try {
      set_generator_state(at::kCPU, wrong);
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
    }
  }
}

}  // namespace
}  // namespace gputrain::device
