#include "gputrain/device/working_copy.hpp"

#include <functional>
#include <stdexcept>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "gputrain/device/arena.hpp"

namespace gputrain::device {
namespace {

/// Random values: a matrix, a convolution's weights in NHWC order and a bias.
struct Weights {
  std::vector<at::Tensor> all{
      at::empty({5, 7}).requires_grad_(true),
      at::empty({4, 3, 2, 2}, at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast)).requires_grad_(true),
      at::empty({9}).requires_grad_(true)};
  Arena arena{{{"matrix", all[0]}, {"conv", all[1]}, {"bias", all[2], 1, false}}, {.working_type = at::kBFloat16}};
  WorkingCopy& copy = *arena.working_copy();

  Weights() {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : all) weight.normal_();
  }

  Reading read() const { return Reading(arena.working_copy()); }

  /// Every weight's working view equals its cast.
  void expect_new() const {
    for (const at::Tensor& weight : all) {
      const at::Tensor view = working_view(weight, at::kBFloat16), cast = weight.detach().to(at::kBFloat16);
      ASSERT_TRUE(view.defined());
      EXPECT_TRUE(view.equal(cast));
      EXPECT_EQ(view.strides(), cast.strides());
      EXPECT_TRUE(view.is_alias_of(copy.tensor()));
    }
  }

  /// Changes values like a kernel, without autograd's knowledge.
  void overwrite(bool with_copy) const {
    auto* values = static_cast<float*>(arena.values().mutable_data_ptr());
    for (int64_t i = 0; i < arena.values().numel(); ++i) values[i] += 1;
    if (!with_copy) return;
    auto* copies = static_cast<c10::BFloat16*>(copy.tensor().mutable_data_ptr());
    for (int64_t i = 0; i < arena.values().numel(); ++i) copies[i] = values[i];
  }
};

TEST(WorkingCopy, ServesOnlyItsTypeWhileAReadingLives) {
  const Weights weights;
  EXPECT_FALSE(working_view(weights.all[0], at::kBFloat16).defined());
  {
    const Reading reading = weights.read();
    weights.expect_new();
    EXPECT_FALSE(working_view(weights.all[0], at::kHalf).defined());
    const Reading within = weights.read();
    weights.expect_new();
  }
  EXPECT_FALSE(working_view(weights.all[0], at::kBFloat16).defined());
  const Reading none(nullptr);
}

TEST(WorkingCopy, FollowsTheValuesWhoeverChangesThem) {
  const Weights weights;
  const at::NoGradGuard no_grad;
  const std::vector<std::function<void()>> writers{[&] { weights.all[1].detach().mul_(2); },
                                                   [&] { weights.arena.values().add_(1); },
                                                   [&] { weights.overwrite(/*with_copy=*/false); },
                                                   [&] {
                                                     weights.overwrite(false);
                                                     weights.copy.note_update(/*wrote_copy=*/false);
                                                   }};
  for (const auto& write : writers) {
    write();
    const Reading reading = weights.read();
    weights.expect_new();
  }
}

TEST(WorkingCopy, IsNotCastAfterAnUpdateThatWroteIt) {
  const Weights weights;
  for (int step = 0; step < 3; ++step) {
    const int64_t before = weights.copy.tensor()._version();
    {
      const Reading reading = weights.read();
      weights.expect_new();
    }
    EXPECT_EQ(weights.copy.tensor()._version(), before + (step == 0 ? 1 : 0)) << step;
    weights.overwrite(/*with_copy=*/true);
    weights.copy.note_update(true);
  }
}

// A skipped update writes neither values nor copy, so its note counts only if the copy was current before.
TEST(WorkingCopy, DistrustsUpdateOfAStaleCopy) {
  const Weights weights;
  weights.copy.note_update(true);
  {
    const Reading reading = weights.read(), again = weights.read();
    weights.expect_new();
  }
  weights.overwrite(false);
  weights.copy.note_update(false);
  weights.copy.note_update(true);
  {
    const Reading reading = weights.read();
    weights.expect_new();
  }
  weights.copy.note_update(true);
  {
    const at::NoGradGuard no_grad;
    weights.all[2].detach().zero_();
  }
  {
    const Reading reading = weights.read();
    weights.expect_new();
  }
}

TEST(WorkingCopy, DetectsUpdateThatDidNotWriteIt) {
  const Weights weights;
  {
    const Reading reading = weights.read();
  }
  weights.overwrite(/*with_copy=*/false);
  weights.copy.note_update(true);
  EXPECT_THROW(weights.read(), std::logic_error);
}

TEST(WorkingCopy, DetectsChangeWhileItIsRead) {
  const Weights weights;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& changed : {weights.all[0].detach(), weights.arena.values()}) {
    const Reading reading = weights.read();
    changed.mul_(2);
    EXPECT_THROW(working_view(weights.all[0], at::kBFloat16), std::logic_error);
  }
}

TEST(WorkingCopy, ExcludesTensorThatLeftTheArena) {
  Weights weights;
  weights.all[0].set_data(at::randn({5, 7}));
  const Reading reading = weights.read();
  EXPECT_FALSE(working_view(weights.all[0], at::kBFloat16).defined());
  EXPECT_TRUE(working_view(weights.all[2].detach(), at::kBFloat16).defined());
}

TEST(WorkingCopy, IsFreedWithItsWeights) {
  c10::weak_intrusive_ptr<WorkingCopy> copy = [] {
    const Weights weights;
    return c10::weak_intrusive_ptr<WorkingCopy>(weights.arena.working_copy());
  }();
  EXPECT_TRUE(copy.expired());
}

TEST(WorkingCopy, ExistsOnlyOnRequest) {
  const Arena arena({{"weight", at::empty({3}).requires_grad_(true)}});
  EXPECT_FALSE(arena.working_copy());
}

}  // namespace
}  // namespace gputrain::device
