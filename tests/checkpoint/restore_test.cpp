// Restores checkpoints into a job's live tensors.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store_fixture.hpp"

namespace gputrain::checkpoint {
namespace {

using ::testing::HasSubstr;

using RestoreTest = StoreFixture;

/// Two parameters in an arena, with a flat optimizer state and a step count.
struct Trained {
  explicit Trained(bool is_reordered) {
    const auto layout = is_reordered ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    const at::Tensor conv = at::empty({4, 3, 2, 2}, at::TensorOptions().memory_format(layout)).requires_grad_(true);
    const at::Tensor bias = at::empty({40}).requires_grad_(true);
    std::vector<device::ArenaTensor> arena_tensors{{"conv", conv, 0, true}, {"bias", bias, 1, false}};
    if (is_reordered) arena_tensors = {{"bias", bias, 0, true}, {"conv", conv, 1, true}};
    arena = std::make_unique<device::Arena>(arena_tensors);
    state.flat = {{"exp_avg", arena->make_state()}};
    state.scalars = {{"step", at::zeros({})}};
  }

  /// The average of a parameter, with the parameter's sizes and strides.
  at::Tensor average_of(const std::string& parameter) const {
    for (const device::Segment& segment : arena->segments()) {
      if (segment.name == parameter) return arena->view(state.flat[0].second, segment);
    }
    return {};
  }

  std::unique_ptr<device::Arena> arena;
  optim::Optimizer::State state;
};

NamedTensors tensors_of(const std::vector<Part::Target>& targets) {
  NamedTensors tensors;
  for (const Part::Target& target : targets) tensors.emplace_back(target.name, target.tensor);
  return tensors;
}

TEST_F(RestoreTest, ReadsStateIntoArenaOfOtherOrder) {
  const Trained before(false), after(true);
  before.state.flat[0].second.copy_(at::randn({before.arena->values().numel()}));
  before.state.scalars[0].second.fill_(41);
  CheckpointStore store(folder_);
  store.save(
      {.step = 1, .files = {{"optimizer", tensors_of(per_parameter(*before.arena, before.state))}}, .state = "{}"});
  store.find_newest().newest->part("optimizer").read(per_parameter(*after.arena, after.state), 3);
  EXPECT_EQ(after.state.scalars[0].second.item<float>(), 41);
  EXPECT_TRUE(after.average_of("conv").equal(before.average_of("conv")));
  EXPECT_TRUE(after.average_of("bias").equal(before.average_of("bias")));
}

TEST_F(RestoreTest, ReadsIntoParametersWithGradients) {
  CheckpointStore store(folder_);
  save(store, 5);
  const at::Tensor weight = at::zeros({3}).requires_grad_(true), bias = at::zeros({4}, at::kLong);
  restore(store.find_newest().newest->part("model"), {{"w", weight}, {"b", bias}});
  EXPECT_EQ(weight.detach().sum().item<float>(), 15);
  EXPECT_TRUE(weight.is_leaf());
}

TEST_F(RestoreTest, RefusesOtherNamesShapesAndTypesUnchanged) {
  CheckpointStore store(folder_);
  save(store, 5);
  const Checkpoint checkpoint = *store.find_newest().newest;
  const at::Tensor w = at::zeros({3}), b = at::zeros({4}, at::kLong);
  const std::vector<std::pair<NamedTensors, std::string>> wrong{
      {{{"w", w}, {"b", at::zeros({5}, at::kLong)}}, "'b' is Long [4], but Long [5] in this job"},
      {{{"w", w}, {"b", at::zeros({4})}}, "'b' is Long [4], but Float [4] in this job"},
      {{{"w", w}, {"c", b}}, "no tensor 'c'"},
      {{{"w", w}}, "has 2 tensors, this job 1"}};
  for (const auto& [live, told] : wrong) {
    try {
      restore(checkpoint.part("model"), live);
      FAIL() << told;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      EXPECT_THAT(error.parts().what, HasSubstr(told));
    }
    EXPECT_EQ(w.sum().item<float>(), 0) << told;
  }
}

}  // namespace
}  // namespace gputrain::checkpoint
