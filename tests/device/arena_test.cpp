#include "gputrain/device/arena.hpp"

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gputrain::device {
namespace {

at::Tensor parameter(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::empty(sizes, at::TensorOptions().dtype(type)).requires_grad_(true);
}

std::vector<std::string> names_of(const Arena& arena) {
  std::vector<std::string> names;
  for (const Segment& segment : arena.segments()) names.push_back(segment.name);
  return names;
}

/// Two units with a weight and a bias each; biases come first and have no decay.
std::vector<ArenaTensor> two_units() {
  return {{"stem.bias", parameter({5}), 0, false},
          {"stem.weight", parameter({5, 3}), 0, true},
          {"head.bias", parameter({40}), 1, false},
          {"head.weight", parameter({2, 2}), 1, true}};
}

TEST(Arena, OrdersByUnitWithDecayingFirst) {
  const Arena arena(two_units());
  EXPECT_EQ(names_of(arena), (std::vector<std::string>{"stem.weight", "stem.bias", "head.weight", "head.bias"}));
}

TEST(Arena, PadsEachSegmentTo128Bytes) {
  const Arena arena(two_units());
  std::vector<int64_t> offsets;
  for (const Segment& segment : arena.segments()) offsets.push_back(segment.offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 32, 64, 96}));
  EXPECT_EQ(arena.values().numel(), 96 + 64);
  const Arena doubles({{"w", parameter({17}, at::kDouble)}});
  EXPECT_EQ(doubles.values().numel(), 32);
}

TEST(Arena, CoversItselfByUnitRanges) {
  const Arena arena(two_units());
  const std::vector<Range> units = arena.unit_ranges();
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].end, 64);
  EXPECT_EQ(units[1].begin, 64);
  EXPECT_EQ(units[1].end, arena.values().numel());
}

TEST(Arena, MakesNeighboursOfEqualSettingsWithinAUnit) {
  std::vector<ArenaTensor> arena_tensors;
  for (const auto& [name, factor] : {std::pair("a", 0.5), std::pair("b", 1.0), std::pair("c", 0.5)})
    arena_tensors.push_back({.name = name, .value = parameter({4}), .settings = {.lr_factor = factor}});
  EXPECT_EQ(names_of(Arena(arena_tensors)), (std::vector<std::string>{"a", "c", "b"}));
}

std::vector<ArenaTensor> two_units_with_a_frozen_stem(std::optional<at::ScalarType> type) {
  std::vector<ArenaTensor> arena_tensors = two_units();
  for (ArenaTensor& tensor : arena_tensors) {
    if (tensor.unit > 0) continue;
    tensor.trainable = false;
    tensor.frozen_type = type;
    tensor.value.set_requires_grad(false);
  }
  return arena_tensors;
}

TEST(Arena, KeepsFrozenValuesOutsideItsBuffers) {
  const std::vector<ArenaTensor> arena_tensors = two_units_with_a_frozen_stem(at::kBFloat16);
  const Arena arena(arena_tensors, {.working_type = at::kBFloat16});
  EXPECT_EQ(names_of(arena), (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(arena.values().numel(), 32 + 64);
  EXPECT_EQ(arena.gradients().numel(), 32 + 64);
  EXPECT_EQ(arena.working_copy()->tensor().numel(), 32 + 64);
  EXPECT_EQ(arena.make_state().numel(), 32 + 64);
  ASSERT_EQ(arena.frozen_values().size(), 1u);
  EXPECT_EQ(arena.frozen_values()[0].nbytes(), 2 * 128);  // each padded to 128 bytes
  ASSERT_EQ(arena.frozen().size(), 2u);
  EXPECT_EQ(arena.frozen()[1].first, "stem.weight");
  const at::Tensor& weight = arena_tensors[1].value;  // the module's own
  EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({5, 3}));
  EXPECT_TRUE(weight.is_alias_of(arena.frozen_values()[0]));
  EXPECT_FALSE(weight.grad().defined());
  weight.fill_(2);
  EXPECT_EQ(arena.frozen_values()[0].sum().item<float>(), 30);
  arena.check_views();
}

TEST(Arena, KeepsFrozenValuesInTheirTypeWhereNoneIsGiven) {
  const std::vector<ArenaTensor> arena_tensors = two_units_with_a_frozen_stem({});
  const Arena arena(arena_tensors);
  EXPECT_EQ(arena_tensors[1].value.scalar_type(), at::kFloat);
  EXPECT_EQ(arena.frozen_values()[0].numel(), 64);
}

TEST(Arena, NeedsSomethingToTrain) {
  std::vector<ArenaTensor> arena_tensors = two_units_with_a_frozen_stem({});
  arena_tensors.resize(2);
  EXPECT_THROW(Arena{arena_tensors}, std::logic_error);
}

TEST(Arena, SharesMemoryWithTheSameTensors) {
  const std::vector<ArenaTensor> arena_tensors = two_units();
  const at::Tensor weight = arena_tensors[1].value;
  const Arena arena(arena_tensors);
  const at::NoGradGuard no_grad;
  weight.fill_(3);
  EXPECT_EQ(arena.values().narrow(0, 0, 15).min().item<float>(), 3);
  EXPECT_EQ(arena.values().sum().item<float>(), 45);  // nothing outside the segment changed
  arena.values().fill_(2);
  EXPECT_EQ(weight.sum().item<float>(), 30);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(weight.is_leaf());
}

TEST(Arena, AccumulatesGradientsInFlatBuffer) {
  const std::vector<ArenaTensor> arena_tensors = two_units();
  const Arena arena(arena_tensors);
  const at::Tensor weight = arena_tensors[1].value;
  EXPECT_EQ(arena.gradients().abs().sum().item<float>(), 0);
  for (int pass = 0; pass < 2; ++pass) weight.mul(2).sum().backward();
  EXPECT_EQ(arena.gradients().narrow(0, 0, 15).min().item<float>(), 4);
  EXPECT_EQ(arena.gradients().sum().item<float>(), 60);
  arena.check_views();
}

TEST(Arena, KeepsChannelsLastStrides) {
  const at::Tensor weight =
      at::empty({4, 3, 2, 2}, at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast)).requires_grad_(true);
  const Arena arena({{"conv.weight", weight}});
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(weight.grad().strides(), weight.strides());
  {
    const at::NoGradGuard no_grad;
    weight.normal_();
  }
  const at::Tensor image = at::randn({2, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  at::conv2d(image, weight).square().sum().backward();
  arena.check_views();

  const at::Tensor plain = weight.detach().contiguous().requires_grad_(true);
  at::conv2d(image, plain).square().sum().backward();
  EXPECT_TRUE(at::allclose(weight.grad(), plain.grad(), 1e-4, 1e-4));
  // The flat buffer holds the gradient in NHWC order, so a fused update pairs each weight with its own gradient.
  const at::Tensor flat = plain.grad().permute({0, 2, 3, 1}).reshape(-1);
  EXPECT_TRUE(at::allclose(arena.gradients().narrow(0, 0, 48), flat, 1e-4, 1e-4));
}

TEST(Arena, DetectsReplacedGradient) {
  const std::vector<ArenaTensor> arena_tensors = two_units();
  const Arena arena(arena_tensors);
  arena.check_views();
  at::Tensor weight = arena_tensors[1].value;
  weight.mutable_grad() = at::ones({5, 3});
  EXPECT_THROW(arena.check_views(), std::logic_error);
  weight.mutable_grad() = at::Tensor();
  EXPECT_THROW(arena.check_views(), std::logic_error);
}

TEST(Arena, DetectsReplacedValue) {
  const std::vector<ArenaTensor> arena_tensors = two_units();
  const Arena arena(arena_tensors);
  at::Tensor weight = arena_tensors[1].value;
  weight.set_data(at::ones({5, 3}));
  EXPECT_THROW(arena.check_views(), std::logic_error);
}

TEST(Arena, RefusesMixedTypesAndDecreasingUnits) {
  EXPECT_THROW(Arena({{"a", parameter({2})}, {"b", parameter({2}, at::kDouble)}}), std::logic_error);
  EXPECT_THROW(Arena({{"a", parameter({2}), 1}, {"b", parameter({2}), 0}}), std::logic_error);
  EXPECT_THROW(Arena({}), std::logic_error);
}

TEST(Arena, AcceptsScalarsAndEmptyTensors) {
  const at::Tensor scalar = parameter({}), empty = parameter({0, 4});
  const Arena arena({{"scale", scalar}, {"nothing", empty}});
  EXPECT_EQ(arena.values().numel(), 32);
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(empty.sizes(), at::IntArrayRef({0, 4}));
  arena.check_views();
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Arena, TakesNoMemoryForUnwrittenGradients) {
  constexpr int64_t kNumel = int64_t{64} << 20;  // 256 MiB
  const std::vector<ArenaTensor> arena_tensors{{"w", parameter({kNumel})}};
  const int64_t before = resident_bytes();
  const Arena arena(arena_tensors);
  const at::Tensor state = arena.make_state();
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  EXPECT_EQ(state.numel(), kNumel);
  EXPECT_EQ(state.narrow(0, kNumel - 10, 10).abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace gputrain::device
