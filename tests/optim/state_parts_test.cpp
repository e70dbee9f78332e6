// An optimizer's state in the host's memory: an update in parts equals one at once, bit for bit.
#include "../../src/optim/state_parts.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

/// Three tensors with two decays, of which rules with their own size of a part make two parts.
struct PartedModel {
  explicit PartedModel(const device::ArenaOptions& options, int64_t rows = 2100) {
    for (const auto& sizes : {std::vector<int64_t>{rows, 2000}, {777}, {30, 20}})
      weights.push_back(at::empty(sizes, at::kFloat).requires_grad_(true));
    arena = std::make_unique<device::Arena>(
        std::vector<device::ArenaTensor>{
            {"matrix", weights[0], 0}, {"vector", weights[1], 0, /*decays=*/false}, {"last", weights[2], 1}},
        options);
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : weights) weight.fill_(1);
  }

  void step(Optimizer& optimizer, int number) const {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : weights) {
      const at::Tensor places = at::arange(weight.numel(), at::kFloat).add_(number).mul_(0.7);
      weight.grad().copy_(places.sin_().view(weight.sizes()));
    }
    const at::Tensor is_infinite = at::full({1}, number == 2 ? 1.0 : 0.0, at::kFloat);
    optimizer.step({.lr = at::full({}, 1e-2, at::kDouble), .found_inf = is_infinite});
  }

  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
};

TEST(StateOnHost, GivesTheSameUpdatesBitForBit) {
  const std::vector<std::string> rules{"type: adamw", "{type: sgd, momentum: 0.9}", "{type: sgd}",
                                       "{type: lion, weight_decay: 0.1}"};
  for (const std::string& rule : rules) {
    const PartedModel on_device({}), on_host({.state_on_host = true});
    const auto one = optimizer_of(rule, *on_device.arena), other = optimizer_of(rule, *on_host.arena);
    for (int step = 1; step <= 3; ++step) {
      if (step == 3)
        for (Optimizer* each : {one.get(), other.get()}) each->count_since({{"vector", 1}});
      on_device.step(*one, step);
      on_host.step(*other, step);
    }
    EXPECT_TRUE(on_device.arena->values().equal(on_host.arena->values())) << rule;
    int64_t bytes = 0;
    const auto expected = one->state().large(), actual = other->state().large();
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(expected[i].equal(actual[i])) << rule;
      EXPECT_GT(expected[i].count_nonzero().item<int64_t>(), 0) << rule;
      bytes += static_cast<int64_t>(actual[i].nbytes());
    }
    EXPECT_EQ(other->bytes_on_host(), bytes) << rule;
    EXPECT_EQ(one->bytes_on_host(), 0) << rule;
  }
}

TEST(StateOnHost, GivesTheSameNarrowWeightsAndAverages) {
  const std::string rule = "{type: adamw, averages: bf16}";
  device::ArenaOptions options{.values_type = at::kBFloat16, .rounding_seed = 7};
  const PartedModel on_device(options);
  options.state_on_host = true;
  const PartedModel on_host(options);
  const auto one = optimizer_of(rule, *on_device.arena), other = optimizer_of(rule, *on_host.arena);
  for (int step = 1; step <= 2; ++step) {
    on_device.step(*one, step);
    on_host.step(*other, step);
  }
  EXPECT_TRUE(on_device.arena->values().equal(on_host.arena->values()));
}

TEST(StateOnHost, IsUpdatedInPartsThatKeepTheirPlaces) {
  const PartedModel model({.state_on_host = true}, /*rows=*/2);
  const device::Arena& arena = *model.arena;
  const StateParts state(arena, {at::kFloat, at::kBFloat16}, /*most=*/999);
  ASSERT_GT(state.parts().size(), 4u);
  for (int round = 0; round < 2; ++round) {
    size_t next = 0;
    state.each([&](size_t part, const std::vector<at::Tensor>& states) {
      EXPECT_EQ(part, next++);
      for (const at::Tensor& one : states) {
        ASSERT_EQ(one.numel(), state.parts()[part].size());
        one.add_(static_cast<double>(part + 1));
      }
    });
    EXPECT_EQ(next, state.parts().size());
  }
  for (size_t part = 0; part < state.parts().size(); ++part) {
    for (const at::Tensor& whole : state.whole()) {
      const device::Range range = state.parts()[part];
      EXPECT_TRUE(
          whole.narrow(0, range.begin, range.size()).eq(2.0 * static_cast<double>(part + 1)).all().item<bool>());
    }
  }
}

TEST(StateOnHost, DividesGroupsWithoutLossOrOverlap) {
  for (const Ranges kind : {Ranges::joined, Ranges::of_tensors}) {
    const PartedModel model({.state_on_host = true}, /*rows=*/2);
    const StateParts state(*model.arena, {at::kFloat}, /*most=*/999);
    using Place = std::array<int64_t, 4>;
    std::set<Place> expected, actual;
    const auto note = [](std::set<Place>& places, const std::vector<UpdateGroup>& groups, int64_t begin) {
      for (const UpdateGroup& group : groups) {
        for (const UpdateRange& range : group.ranges) {
          for (int64_t i = 0; i < range.size; ++i) {
            const Place place{range.state_at + begin + i, range.values_at + i, range.gradients_at + i,
                              static_cast<int64_t>(group.weight_decay * 100)};
            EXPECT_TRUE(places.insert(place).second);
          }
        }
      }
    };
    const auto groups = update_groups(*model.arena, 0.1, {}, kind);
    note(expected, groups, 0);
    const auto split = state.split(groups);
    ASSERT_EQ(split.size(), state.parts().size());
    for (size_t part = 0; part < split.size(); ++part) note(actual, split[part], state.parts()[part].begin);
    EXPECT_EQ(expected, actual);
    EXPECT_EQ(static_cast<int64_t>(expected.size()), model.arena->numel());
  }
}

}  // namespace
}  // namespace gputrain::optim
